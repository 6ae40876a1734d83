#!/usr/bin/env python3
"""Rows of every layout of scripts/data, made by hand: units, sizes, work, what is left out and said."""
import csv
import gzip
import json
import os
import subprocess
import tempfile
import unittest

CONVERT = os.path.join(os.path.dirname(__file__), "../../scripts/data/convert")
NARROW = {
    "gemm__b200_sxm__s_1.csv": "gemm_dtype,m,n,k,latency_ms\nfp8,64,512,1024,0.020\nnvfp4,64,512,1024,0.010\nfp8_block,64,512,1024,0.012\n"
                               "fp8,64,512,2048,0.020\nfp8,32,512,1024,0.007\nbf17,1,1,1,1\n",
    "scale_matrix__b200_sxm__s_1.csv": "quant_dtype,m,k,latency_ms\nfp8,64,1024,0.003\nfp8,32,1024,0.003\n",
    "computescale__b200_sxm__s_1.csv": "quant_dtype,m,k,latency_ms\nfp8,64,1024,0.005\nfp8,32,1024,0.005\nfp8,16,1024,0\n"}


class Convert(unittest.TestCase):
    def run_on(self, files):
        """Rows by file, and what was printed."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = os.path.join(folder, "in", name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with gzip.open(path, "wt") if name.endswith(".gz") else open(path, "w") as file:
                    file.write(text)
            done = subprocess.run([CONVERT, os.path.join(folder, "in"), os.path.join(folder, "out")], capture_output=True, text=True)
            self.said = done.stdout + done.stderr
            self.code = done.returncode
            found = {}
            for name in files:
                path = os.path.join(folder, "out", name)
                if os.path.exists(path):
                    with gzip.open(path, "rt") if name.endswith(".gz") else open(path) as file:
                        found[name] = list(csv.DictReader(file))
            return found

    def rows_of(self, name, header, *lines):
        return self.run_on({name: "\n".join((header, *lines)) + "\n"}).get(name, [])

    def check(self, row, sizes=None, **expected):
        if sizes:
            self.assertEqual([int(row[f"s{i}"]) for i in range(len(sizes))], list(sizes))
        for column, value in expected.items():
            if isinstance(value, str):
                self.assertEqual(row[column], value, column)
            else:
                self.assertAlmostEqual(float(row[column]) / value, 1, 9, column)

    def test_products_are_told_without_their_quantisation(self):
        found = self.run_on(NARROW)
        rows = found["gemm__b200_sxm__s_1.csv"]
        self.assertEqual(len(rows), 5)
        self.assertIn("6 rows read, 5 written\n  1 left out: bf17 is a gemm_dtype", self.said)
        # One scale a tensor: cast and search; scales of blocks: the cast alone, of 4.5 bits 2.5625 bytes of the 3 of fp8.
        self.check(rows[0], (64, 512, 1024), kind="gemm", format="fp8", seconds=12e-6, apart=8e-6, kernel="", device="b200-sxm",
                   stack="s 1", configuration="gemm 512 1024")
        self.check(rows[1], seconds=10e-6 - 3e-6 * 2.5625 / 3, format="nvfp4", kernel="")
        self.check(rows[2], seconds=9e-6, format="fp8", kernel="fp8_block")
        # No quantisation of this (m, k), or more than the whole time: a product with it.
        self.check(rows[3], seconds=20e-6, kernel="with quantisation", apart="")
        self.check(rows[4], seconds=7e-6, kernel="with quantisation")
        cast = found["scale_matrix__b200_sxm__s_1.csv"][0]
        self.check(cast, (64 * 1024,), kind="cast", flops=2.0 * 65536, bytes=3.0 * 65536, kernel="")
        search = found["computescale__b200_sxm__s_1.csv"]
        self.assertEqual(len(search), 2)
        self.check(search[0], bytes=2.0 * 65536, kernel="search of the maximum")
        self.assertTrue(cast["source"].startswith("scale_matrix__b200_sxm__s_1.csv (sha256 "))

    def test_layer_of_experts_is_one_time_of_several_ops(self):
        header = "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution,kernel_source,latency_ms"
        torch = "moe_torch_flow_cutlass"
        rows = self.rows_of("moe__b200_sxm__s_1.csv.gz", header, f"bfloat16,1024,4096,1536,8,128,2,4,balanced,{torch},0.5",
                            f"bfloat16,2,4096,1536,8,128,1,1,balanced,{torch},0.5", f"bfloat16,1024,4096,1536,8,128,1,1,power_law_1.2,{torch},0.5",
                            "bfloat16,1024,4096,2688,8,128,1,1,balanced,nongated,0.5", "bfloat16,8,4096,1536,8,128,1,2,balanced,fused_triton,0.5")
        layers = [rows[i:i + 6] for i in range(0, len(rows), 6)]
        self.assertEqual(len(layers), 4)
        self.assertIn("tokens of other ranks", self.said)
        # 1,024 tokens, 8 copies each, on 4 ranks: 2,048 copies for 32 experts; half of 1,536 columns, two matrices at first.
        self.check(layers[0][0], (64, 2 * 768, 4096, 32), kind="grouped_gemm", seconds=5e-4, flops=2.0 * 2048 * 1536 * 4096, kernel="")
        self.check(layers[0][1], (64, 4096, 768, 32), seconds="", device="")
        self.assertEqual([op["kind"] for op in layers[0][2:]], ["route_forward", "dispatch_forward", "activation_forward", "combine_forward"])
        self.check(layers[1][0], (1, 2 * 1536, 4096, 16))  # 2 tokens reach 16 experts: no other weights are read
        self.check(layers[2][0], kernel="power_law_1.2")
        self.check(layers[3][0], (64, 2688, 4096, 128), kernel="nongated")

    def test_rank_slower_than_more_work_is_a_variant(self):
        header = "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution,kernel_source,latency_ms"
        layer = "1024,4096,1536,8,128,{},balanced,moe_torch_flow_cutlass,{}"
        times = {"1,1": 2, "2,1": 1.1, "4,1": 1.2, "2,4": 1.3, "1,4": 0.6, "8,1": 2.4}
        rows = self.rows_of("moe__b200_sxm__s_1.csv", header, *("bfloat16," + layer.format(*t) for t in times.items()), "fp8," + layer.format("1,1", 0.5))
        said = [r["kernel"] for r in rows if r["seconds"]]
        self.assertEqual(said, ["", "", "", "slower than more work", "", "slower than more work", ""])

    def test_derived_constants(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "d.json")
            with open(file, "w") as f:
                f.write('{\n  "fitted": {\n    "gemm.fp8": {\n      "constants": {"sustained": 0.5},\n      "samples": 0,\n      "log_sigma": 0.1,\n'
                        '      "source": "as measured"\n    }\n  }\n}\n')
            derive = os.path.join(os.path.dirname(CONVERT), "derive")
            subprocess.run([derive, file, "gemm.mxfp4=gemm.fp8", "sustained", "peak:2", "twice the peak"], check=True)
            with open(file) as f:
                fitted = json.load(f)["fitted"]
            self.assertEqual(fitted["gemm.fp8"]["constants"], {"sustained": 0.5})
            # Half of a product's time halves: 0.75 of it, at 0.5 of the old peak, is 0.5 / 0.75 / 2 of the new one.
            self.assertAlmostEqual(fitted["gemm.mxfp4"]["constants"]["sustained"], 0.5 / 1.5, 5)
            self.assertIn("twice the peak", fitted["gemm.mxfp4"]["source"])
            self.assertNotEqual(subprocess.run([derive, file, "gemm.bf16", "sustained", "2", "x"], capture_output=True).returncode, 0)

    def test_attention(self):
        header = "batch_size,isl,num_heads,num_key_value_heads,head_dim,window_size,attn_dtype,kv_cache_dtype,step,kernel_source,latency_ms"
        rows = self.rows_of("context_attention__b200_sxm__s_1.csv", header, "4,16384,96,8,512,0,bfloat16,bfloat16,0,torch_flow_flashinfer,18",
                            "4,16384,96,96,64,128,fp8,fp8,0,torch_flow,18", "4,16384,96,96,64,128,fp8,fp8,16,torch_flow,18")
        self.assertEqual(len(rows), 2)
        self.check(rows[0], (4, 96, 8, 16384, 16384, 512), kernel="without rotation and cache", flags="8", window="", seconds=18e-3)
        self.check(rows[1], format="fp8", window="128", kernel="", configuration="attention_forward 96 96 64")
        header = "mla_dtype,kv_cache_dtype,num_heads,batch_size,isl,step,latency_ms"
        rows = self.rows_of("context_mla__b200_sxm__s_1.csv", header, "bfloat16,bfloat16,16,2,4096,0,0.5", "bfloat16,fp8,16,2,4096,0,0.5")
        self.check(rows[0], (2, 16, 16, 4096, 4096, 160), kernel="")  # (192 + 128) / 2
        self.check(rows[1], kernel="narrow cache")
        self.assertEqual(self.rows_of("mla__b200_sxm__s_1.csv", header + ",gemm_type", "bfloat16,bfloat16,16,2,4096,0,0.9,bfloat16"), [])
        self.assertIn("a layer with its projections", self.said)

    def test_row_wise_and_embedding(self):
        rows = self.rows_of("e.csv", "op,device,B,H,latency_ms", "add,Tesla T4,8,16,0.1", "mul,Tesla T4,8,16,0.1", "gelu,My GPU,8,16,0.1", "sort,T4,8,16,1")
        self.check(rows[0], (8, 16), kind="add", device="t4", kernel="", seconds=1e-4, format="fp32")
        self.check(rows[1], kind="add", kernel="mul")
        self.check(rows[2], kind="activation_forward", variant="gelu", device="My GPU")
        self.assertIn("1 left out: sort is an op without", self.said)
        header = "kernel_name,batch_size,num_embeddings,num_tables,bag_size,embedding_dim,kernel_runtime"
        row, = self.rows_of("elb_noshmem_V100.csv", header, "backward_1,128,1000,2,8,64,7.5")
        # 641.0 distinct rows of 1,024 uniform lookups in 1,000: read, and read and written again; ids and lengths.
        self.check(row, (2048, 256, 128, 1), kind="embedding_backward", device="v100-sxm2-32gb", seconds=7.5e-6, flops=2048.0 * 64,
                   embedding="sgd" + 2 * "; 1000 1000 64 1024 128 uniform", stack="batched embedding, no shared memory")
        self.assertAlmostEqual(float(row["bytes"]), (2048 + 4 * 641.03) * 64 * 4 + 8 * 2048 + 4 * 256, delta=2000)

    def test_collectives(self):
        rows = self.rows_of("nccl__a100_sxm__2.27.csv", "op_name,nccl_dtype,num_gpus,message_size,latency_ms", "all_gather,half,4,256,0.009", "alltoall,int8,8,256,0.009")
        self.check(rows[0], bytes=512.0, ranks="4", ranks_per_machine="4", format="fp16", stack="nccl 2.27", system="dgx-a100-80gb")
        self.check(rows[1], bytes=256.0, kind="all_to_all")
        row, = self.rows_of("aws_p5_efa__nccl_all_reduce.csv", "Nodes,GPUs,size(MB),iterations,out algbw(GB/s)", "2,16,64,10,2")
        self.check(row, bytes=64 * 1048576.0, seconds=64 * 1048576 / 2e9, ranks="16", ranks_per_machine="8", samples="10", system="p5-h100")
        rows = self.rows_of("digitized_4xV100_latency.csv", "collective,size_bytes,latency_us", "all_to_allv,16,84", "reduce,16,84")
        self.check(rows[0], kind="all_to_all", kernel="all_to_allv", seconds=84e-6, ranks="4")
        self.assertIn("1 left out: reduce is no collective", self.said)
        rows = self.rows_of("x__h100_dgx__send_recv.csv", "collective,num_workers,devices_per_node,rank,size_bytes,median_ms",
                            "send_recv,2,1,0,2048,0.02", "send_recv,2,1,1,2048,0.01", "send_recv,2,1,0,4096,0.03")
        self.assertEqual([float(r["seconds"]) for r in rows], [1e-5, 3e-5])  # of two ranks, the one that waited less

    def test_host(self):
        found = self.run_on({"t1.csv": "model,batch_size,mean_us,std_us,count\nm,8,10,1,100\nn,8,7,1,100\n",
                             "t2.csv": "op,model,batch_size,mean_us,std_us,count\na,m,8,20,1,30\nb,m,8,40,1,10\n"})
        row, = found["t1.csv"]
        self.check(row, kind="host_issue", configuration="m 8", seconds=35e-6)  # 10 + (20 * 30 + 40 * 10) / 40
        self.assertNotIn("t2.csv", found)

    def test_exchanges_of_experts(self):
        header = "node_num,hidden_size,num_token,num_topk,num_experts,dispatch_sms,dispatch_transmit_us,dispatch_notify_us,combine_sms,combine_transmit_us,combine_notify_us"
        there, back = self.rows_of("deepep_normal__h100_sxm__s_1.csv", header, "2,7168,128,1,256,20,37,3,24,48,0")
        # One expert a token: one rank is reached. fp8 with a scale of 4 bytes for 128 values there, bf16 back.
        self.check(there, (128, 7168, 1, 256), kind="all_to_all", format="fp8", bytes=128 * 7168 * (1 + 4 / 128), seconds=40e-6, ranks="16",
                   ranks_per_machine="8", kernel="deepep on 20 multiprocessors, dispatch")
        self.check(back, format="bf16", bytes=128 * 7168 * 2.0, seconds=48e-6, kernel="deepep on 24 multiprocessors, combine")
        header = "node_num,hidden_size,num_token,num_topk,num_experts,dispatch_avg_t_us,dispatch_bandwidth_gbps,combine_avg_t_us,combine_bandwidth_gbps"
        there, _ = self.rows_of("deepep_ll__gb200__s_1.csv", header, "1,2048,4,8,128,12,1,11,2")
        self.check(there, bytes=4 * 8 * 2048 * (1 + 4 / 128), ranks="4", kernel="deepep low latency, dispatch")
        header = "op_name,kernel_source,moe_dtype,num_tokens,hidden_size,topk,num_experts,moe_ep_size,distribution,latency_ms"
        rows = self.rows_of("trtllm_alltoall__gb200__t_1.csv", header, *(f"alltoall_{op},NVLinkTwoSided,fp8,4,7168,2,4,2,balanced,0.01"
                                                                       for op in ("prepare", "dispatch", "combine", "combine_low_precision")))
        # Two of four experts on two ranks: both in one pair of six on either, so 2 (1 - 1/6) ranks.
        self.check(rows[0], bytes=4 * 2 * 4.0, format="int32", ranks_per_machine="2", system="gb200-nvl72")
        self.check(rows[1], bytes=4 * 7168 * 5 / 3, format="fp8", kernel="NVLinkTwoSided fp8, dispatch")
        self.check(rows[2], bytes=4 * 7168 * 2 * 5 / 3, format="bf16")
        self.check(rows[3], bytes=4 * 7168 * 0.5625 * 5 / 3, format="nvfp4")

    def test_other_files(self):
        self.run_on({"a.csv": "x,y\n1,2\n", "b.csv": "op,device,B,H,latency_ms\nadd,t4,1\nadd,t4,1,1,1\n"})
        self.assertIn("a.csv: not a table of measured ops, left alone", self.said)
        self.assertIn("1 left out: a line with more or fewer fields", self.said)
        self.run_on({"a.csv": "x,y\n1,2\n"})
        self.assertEqual(self.code, 2)
        self.assertIn("no table of a layout", self.said)
        first, second = self.run_on(NARROW), self.run_on(NARROW)
        self.assertEqual(first, second)


if __name__ == "__main__":
    unittest.main()
