"""The layouts of benchmark tables that `convert` knows. A reader yields rows as dictionaries by column of COLUMNS (sizes in the order
of core/graph/op.h, `seconds` in the first of several ops that took the time together), or raises LeftOut with the reason."""
import collections
import math
import os
import re

COLUMNS = ("kind format s0 s1 s2 s3 s4 s5 flags variant window flops bytes seconds apart samples configuration device system stack "
           "kernel ranks ranks_per_machine embedding source").split()
# Devices as the files write them, and the device and machine of stepcast that they are.
MACHINES = {
    "a100_sxm": ("a100-sxm-80gb", "dgx-a100-80gb"), "h100_sxm": ("h100-sxm-80gb", "dgx-h100"), "h100_dgx": ("h100-sxm-80gb", "dgx-h100"),
    "p5": ("h100-sxm-80gb", "p5-h100"), "h200_sxm": ("h200-sxm-141gb", "dgx-h200"), "b200_sxm": ("b200-sxm", "dgx-b200"),
    "gb200": ("gb200", "gb200-nvl72"), "l40s": ("l40s", "l40s-8"), "rtx_pro_6000_server": ("rtx-pro-6000", "rtx-pro-6000-8"),
    "V100": ("v100-sxm2-32gb", "dgx-v100-32gb"), "4xV100": ("v100-sxm2-32gb", "dgx-v100-32gb")}
DEVICES = {"Tesla P100-PCIE-16GB": "p100", "Tesla V100-PCIE-32GB": "v100-pcie-32gb", "Tesla P4": "p4", "Tesla T4": "t4",
           "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb"}
BLOCK_SCALED = {"fp8_block": "fp8_block"}
FORMATS = {"bfloat16": "bf16", "half": "fp16", "float16": "fp16", "float": "fp32", "float32": "fp32", "fp8_block": "fp8",
           **{f: f for f in "fp32 bf16 fp16 fp8 int8 nvfp4 mxfp4 mxfp8".split()}}
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "nvfp4": 0.5625, "mxfp4": 0.53125, "mxfp8": 1.03125}  # an element, scales included
CAUSAL = 8  # of the flags of core/graph/op.h


class LeftOut(Exception):
    """A row that has no meaning in the schema."""


class Table:
    def __init__(self, path, layout, digest):
        self.path, self.layout, self.read = path, layout, 0
        self.name = re.sub(r"\.csv(\.gz)?$", "", os.path.basename(path))
        self.stack = layout.stack.format("".join(self.name.split("__")[2:]).replace("_", " "))  # KIND__DEVICE__STACK
        self.device, self.system = next((m for key, m in MACHINES.items() if re.search(rf"(^|_){key}(_|$)", self.name)), ("", ""))
        self.source = f"{os.path.basename(path)} (sha256 {digest[:16]})"
        self.kept = {}  # rows written after the last line

    def row(self, kind, sizes, seconds, key=None, **more):
        """One op. `key`: what rows that are held out together have in common, besides the kind."""
        found = {"kind": kind, **{f"s{i}": s for i, s in enumerate(sizes)}}
        if seconds is not None:
            found.update(seconds=seconds, device=self.device, stack=self.stack, configuration=" ".join([kind, *map(str, key)]) if key else "")
        return {**found, **more}

    def collective(self, kind, size, ranks, per_machine, seconds, **more):
        return self.row(kind, (), seconds, system=self.system, ranks=ranks, ranks_per_machine=per_machine, **{"format": "fp32", "bytes": size, **more})


def number(row, column, least=None):
    value = float(row[column]) if re.fullmatch(r"[-+.\deE]*\d", row[column]) else math.nan
    if not math.isfinite(value) or value <= 0 if least is None else not value >= least or value != int(value):
        raise LeftOut(f"{column} is \"{row[column]}\", expected {'a number above 0' if least is None else f'an integer from {least}'}")
    return value if least is None else int(value)


def count(row, *columns, least=1):
    found = [number(row, c, least) for c in columns]
    return found if len(found) > 1 else found[0]


def known(names, name, what):
    if name not in names:
        raise LeftOut(f"{name} is {what}")
    return names[name]


def format_of(row, column):
    return known(FORMATS, row[column], f"a {column} that is no number format of stepcast")


quantisation = {}  # by device, stack, m and k: seconds of the cast and of the search


def quantised(row, t):
    """[m, k] from bf16 to fp8: the cast with a given scale, or (computescale) what the search of the largest value adds."""
    searched = "computescale" in t.name
    form, seconds = format_of(row, "quant_dtype"), number(row, "latency_ms") * 1e-3
    m, k = count(row, "m", "k")
    quantisation.setdefault((t.device, t.stack, m, k), [0, 0])[searched] = seconds
    yield t.row("cast", (m * k,), seconds, (k,), format=form, flops=2 * m * k, bytes=2 * m * k + (0 if searched else m * k * BYTES[form]),
                kernel="search of the maximum" if searched else "")


def products(row, t):
    """C[m,n] = A[m,k] B[k,n], cold weights, no launch gap. Products narrower than 16 bits read bf16: the cast of A is in their times,
    with the search of its largest value where one scale serves the tensor. The graph has that cast as an op, so it is taken off."""
    form, kernel = format_of(row, "gemm_dtype"), BLOCK_SCALED.get(row["gemm_dtype"], "")
    m, n, k = count(row, "m", "n", "k")
    seconds, apart = number(row, "latency_ms") * 1e-3, ""
    if BYTES[form] < 2:
        cast, search = quantisation.get((t.device, t.stack, m, k), (0, 0))
        one_scale = form in ("fp8", "int8") and not kernel
        left = seconds - cast * ((2 + BYTES[form]) / 3) - (search if one_scale else 0)
        if cast > 0 and (search > 0 or not one_scale) and left > 0:
            seconds, apart = left, seconds - left
        else:
            kernel += " with quantisation" if kernel else "with quantisation"
    yield t.row("gemm", (m, n, k, 1), seconds, (n, k), format=form, kernel=kernel, apart=apart)


def prefill(row, t, form, heads, kv_heads, width, kernel):
    if count(row, "step", least=0) != 0:
        raise LeftOut("step is not 0: only prefill without cached tokens is an op of stepcast")
    batch, length = count(row, "batch_size", "isl")
    yield t.row("attention_forward", (batch, heads, kv_heads, length, length, width), number(row, "latency_ms") * 1e-3, (heads, kv_heads, width),
                format=form, flags=CAUSAL, kernel=kernel, window=count(row, "window_size", least=0) or "" if row.get("window_size") else "")


def attention(row, t):
    """Causal, query length = key length = isl. The kernels of flashinfer were timed without the rotation and the write to the cache."""
    bare = row.get("kernel_source", "").endswith("flashinfer")
    yield from prefill(row, t, format_of(row, "attn_dtype"), *count(row, "num_heads", "num_key_value_heads", "head_dim"),
                       "without rotation and cache" if bare else "")


def latent_attention(row, t):
    """Keys and values projected up: queries and keys of 192, values of 128; the op's width is their mean."""
    if row.get("gemm_type"):
        raise LeftOut("gemm_type: a layer with its projections, not attention alone")
    form, heads = format_of(row, "mla_dtype"), count(row, "num_heads")
    yield from prefill(row, t, form, heads, heads, (192 + 128) // 2, "" if format_of(row, "kv_cache_dtype") == form else "narrow cache")


expert_layers = {}  # by all that sets a layer's times apart but its division: seconds by (tensor, expert) ranks


def missed(times, split, ranks, seconds):
    """Whether a rank with no less to do took clearly less time: the library's tuning missed the kernel (by up to 4 times)."""
    return any(s <= split and r <= ranks and 1.15 * other < seconds for (s, r), other in times.items())


TWO_MATRICES = {(2688, 1856), (2048, 5120), (1024, 2688), (4096, 2688), (8192, 5120)}  # squared ReLU; other experts are gated


def experts(row, t):
    """One rank of a layer: choice, permutation, both grouped products, activation, weighted sum. Tokens are those of the group."""
    # Read twice: what is slower than more work is known at the end of the table.
    form = format_of(row, "moe_dtype")
    tokens, hidden, ffn, chosen, all_experts, ranks = count(row, "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_ep_size")
    split = count(row, "moe_tp_size") if row.get("moe_tp_size") else 1
    kernel = row.get("kernel_source", "")
    if ranks > 1 and ("triton" in kernel or "flatten" in kernel):
        raise LeftOut("this kernel computes the tokens of other ranks too where moe_ep_size is above 1")
    assigned = max(1, tokens * chosen // ranks)  # of the rank, spread evenly over the experts that have any
    active = min(max(1, all_experts // ranks), assigned)
    rows, width = -(-assigned // active), max(1, ffn // split)
    seconds = number(row, "latency_ms") * 1e-3
    times = expert_layers.setdefault((t.device, t.stack, kernel, row["moe_dtype"], row["distribution"], tokens, hidden, ffn, chosen, all_experts), {})
    times[split, ranks] = seconds
    said = [BLOCK_SCALED.get(row["moe_dtype"], ""), "" if kernel.endswith("moe_torch_flow_cutlass") else kernel,
            "" if row["distribution"] == "balanced" else row["distribution"], "slower than more work" if missed(times, split, ranks, seconds) else ""]

    def product(n, k, seconds, **more):
        return t.row("grouped_gemm", (rows, n, k, active), seconds, format=form, flops=float(2 * rows * n * k * active) * (assigned / (rows * active)), **more)

    yield product((1 if (hidden, ffn) in TWO_MATRICES else 2) * width, hidden, seconds,
                  configuration=f"grouped_gemm {hidden} {ffn} {all_experts} {chosen}", kernel=", ".join(s for s in said if s))
    yield product(hidden, width, None)
    yield t.row("route_forward", (tokens, all_experts, chosen), None, format="fp32")
    yield t.row("dispatch_forward", (assigned, hidden), None, format="bf16")
    yield t.row("activation_forward", (assigned, width), None, format="bf16", variant="swiglu")
    yield t.row("combine_forward", (tokens, hidden, assigned), None, format="bf16")


# Kind and variant; True where the kernel only moves as much an element as the kind.
ROW_WISE = {"add": ("add", "", False), **{op: ("add", "", True) for op in ("mul", "div", "pow")},
            "relu": ("activation_forward", "relu", False), "gelu": ("activation_forward", "gelu", False),
            **{op: ("activation_forward", "none", True) for op in ("tanh", "addu", "mulu", "divu", "powu")},
            "ln": ("norm_forward", "layer_norm", False), "softmax": ("cross_entropy_loss", "", True)}


def row_wise(row, t):
    kind, variant, stands_in = known(ROW_WISE, row["op"], "an op without an op kind of stepcast")
    rows, width = count(row, "B", "H")
    yield t.row(kind, (rows, width), number(row, "latency_ms") * 1e-3, (width,), format="fp32", variant=variant,
                kernel=row["op"] if stands_in else "") | {"device": DEVICES.get(row["device"], row["device"])}


def embedding(row, t):
    """Table-batched bags, uniform indices, fp32, microseconds. Work as the workloads count it: 64-bit ids and a length a bag are read."""
    backward = "backward" in row["kernel_name"]
    bags, rows, tables, pooling, dim = count(row, "batch_size", "num_embeddings", "num_tables", "bag_size", "embedding_dim")
    lookups = tables * bags * pooling
    distinct = tables * -rows * math.expm1(bags * pooling * math.log1p(-1 / rows))
    ids = 8 * lookups + 4 * tables * bags
    moved = (lookups + 2 * distinct) * dim * 4 + ids if backward else (lookups + tables * bags) * dim * 4 + ids
    shard = f"; {rows} {rows} {dim} {bags * pooling} {bags} uniform"
    yield t.row("embedding_backward" if backward else "embedding_forward", (lookups, tables * bags, tables * dim, 1),
                number(row, "kernel_runtime") * 1e-6, (rows, dim), format="fp32", flops=lookups * dim, bytes=moved,
                embedding="sgd" + shard * tables, stack=f"batched embedding, {'no ' if 'noshmem' in t.name else ''}shared memory")


COLLECTIVES = {"alltoall": "all_to_all", "all_to_allv": "all_to_all", "all_gather_base": "all_gather",
               **{k: k for k in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")}}

NO_COLLECTIVE = "no collective of stepcast"


def nccl(row, t):
    """Inside one machine; message_size counts elements in NCCL's convention of the op's size."""
    form, ranks = format_of(row, "nccl_dtype"), count(row, "num_gpus", least=2)
    yield t.collective(known(COLLECTIVES, row["op_name"], NO_COLLECTIVE), number(row, "message_size") * BYTES[form], ranks, ranks, number(row, "latency_ms") * 1e-3, format=form)


def nccl_bandwidth(row, t):
    """Bandwidths of a collective that the file's name says, out of place: time = size / bandwidth, MB read as MiB."""
    kind = next((k for k in ("all_reduce", "all_gather", "reduce_scatter", "alltoall") if k in t.name), "a table whose name says no collective")
    machines, ranks = count(row, "Nodes"), count(row, "GPUs", least=2)
    if ranks % machines:
        raise LeftOut("GPUs do not divide into Nodes")
    size = number(row, "size(MB)") * 1048576.0
    yield t.collective(known(COLLECTIVES, kind, NO_COLLECTIVE), size, ranks, ranks // machines, size / (number(row, "out algbw(GB/s)") * 1e9), samples=count(row, "iterations"))


def plotted(row, t):
    """Four ranks of one machine, read off a log plot. The size of an all-gather is what it gathers."""
    name, kind = row["collective"], known(COLLECTIVES, row["collective"], NO_COLLECTIVE)
    yield t.collective(kind, number(row, "size_bytes"), 4, 4, number(row, "latency_us") * 1e-6, kernel="" if name == kind else name)


def transfer(row, t):
    """One row per rank, the median of the transfer: the rank that waited less counts."""
    found = t.collective("send", number(row, "size_bytes"), count(row, "num_workers", least=2), count(row, "devices_per_node"),
                         number(row, "median_ms") * 1e-3)
    key = (found["bytes"], found["ranks"], found["ranks_per_machine"])
    before = t.kept.get(key)
    t.kept[key] = found if not before or found["seconds"] < before["seconds"] else before
    if before:
        raise LeftOut("another rank of the same transfer, which waited longer")


launches = {}  # by model and batch size, by op: host seconds from the op's start to its first launch, and how many


def gap_before_launch(row, t):
    launches.setdefault((row["model"], count(row, "batch_size")), {})[row["op"]] = (number(row, "mean_us") * 1e-6, count(row, "count"))
    raise LeftOut("time before a launch, which is part of the rows of gaps between ops")


def gap_between_ops(row, t):
    """The host's part of an op: the gap to the one before and the mean time before a launch."""
    of = launches.get((row["model"], count(row, "batch_size")), {}).values()
    if not of:
        raise LeftOut("no table of this call has the time before a launch of this model and batch size")
    seconds = number(row, "mean_us") * 1e-6 + sum(s * n for s, n in of) / sum(n for _, n in of)
    yield t.row("host_issue", (), seconds, configuration=f"{row['model']} {row['batch_size']}", samples=count(row, "count"))


def exchange(t, way, kernel, sizes, ranks, per_machine, seconds, form, value=None, to_ranks=True):
    """Copies of tokens to experts or back, as an all-to-all of the bytes that a rank is expected to send; s0 to s3 are tokens of a rank,
    width, experts a token, experts. A token goes once to each rank that has one of its experts (drawn evenly, without repeats), or to
    each expert; a value takes `value` bytes."""
    tokens, width, chosen, experts_ = sizes
    reached = ranks * (1 - math.comb(experts_ - experts_ // ranks, chosen) / math.comb(experts_, chosen)) if to_ranks else chosen
    return t.row("all_to_all", sizes, seconds, system=t.system, format=form, bytes=tokens * reached * width * (value or BYTES[form]),
                 ranks=ranks, ranks_per_machine=per_machine, kernel=f"{kernel}, {way}")


def deepep(row, t):
    """Microseconds; fp8 with an fp32 scale for 128 values there, bf16 back. Low latency sends to experts."""
    sizes = count(row, "num_token", "hidden_size", "num_topk", "num_experts")
    per_machine, normal = 4 if t.device == "gb200" else 8, "dispatch_sms" in row
    for way, value, form in (("dispatch", 1 + 4 / 128, "fp8"), ("combine", 2, "bf16")):
        kernel = f"deepep on {row[way + '_sms']} multiprocessors" if normal else "deepep low latency"
        us = number(row, f"{way}_transmit_us" if normal else f"{way}_avg_t_us") + (float(row[way + "_notify_us"]) if normal else 0)
        yield exchange(t, way, kernel, sizes, count(row, "node_num") * per_machine, per_machine, us * 1e-6, form, value, normal)


def trtllm_exchange(row, t):
    """Inside one NVLink domain; bf16 comes back but for combine_low_precision, which returns nvfp4. `prepare` sends int32 ids."""
    sizes = count(row, "num_tokens", "hidden_size", "topk", "num_experts")
    ranks, way = count(row, "moe_ep_size", least=2), row["op_name"].removeprefix("alltoall_").replace("_", " ")
    form = {"combine": "bf16", "combine low precision": "nvfp4", "prepare": "int32"}.get(way) or format_of(row, "moe_dtype")
    kernel = f"{row['kernel_source']} {row['moe_dtype']}"
    ids = {"value": 4 / sizes[1], "to_ranks": False} if way == "prepare" else {}
    yield exchange(t, way, kernel, sizes, ranks, ranks, number(row, "latency_ms") * 1e-3, form, **ids)


# `first`: read before all others, which look its rows up.
Layout = collections.namedtuple("Layout", "columns rows stack first", defaults=("{}", False))
LAYOUTS = [
    Layout("gemm_dtype,m,n,k,latency_ms", products),
    Layout("quant_dtype,m,k,latency_ms", quantised, first=True),
    Layout("batch_size,isl,num_heads,num_key_value_heads,head_dim,attn_dtype,step,latency_ms", attention),
    Layout("mla_dtype,kv_cache_dtype,num_heads,batch_size,isl,step,latency_ms", latent_attention),
    Layout("moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_ep_size,distribution,latency_ms", experts, first=True),
    Layout("op,device,B,H,latency_ms", row_wise, "PyTorch 2.1.0, CUDA 12.1"),
    Layout("kernel_name,batch_size,num_embeddings,num_tables,bag_size,embedding_dim,kernel_runtime", embedding),
    Layout("op_name,nccl_dtype,num_gpus,message_size,latency_ms", nccl, "nccl {}"),
    Layout("Nodes,GPUs,size(MB),iterations,out algbw(GB/s)", nccl_bandwidth, "nccl over EFA"),
    Layout("collective,size_bytes,latency_us", plotted, "PARAM, read off a plot"),
    Layout("collective,num_workers,devices_per_node,rank,size_bytes,median_ms", transfer, "profiled send and receive"),
    Layout("model,batch_size,mean_us,std_us,count", gap_between_ops, "PyTorch"),
    Layout("op,model,batch_size,mean_us,std_us,count", gap_before_launch, "PyTorch", first=True),
    Layout("node_num,hidden_size,num_token,num_topk,num_experts,dispatch_sms,dispatch_transmit_us,combine_transmit_us", deepep),
    Layout("node_num,hidden_size,num_token,num_topk,num_experts,dispatch_avg_t_us,combine_avg_t_us", deepep),
    Layout("op_name,kernel_source,moe_dtype,num_tokens,hidden_size,topk,num_experts,moe_ep_size,distribution,latency_ms", trtllm_exchange),
]
