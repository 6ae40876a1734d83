#pragma once

// One source, three instruction sets: the loader picks the clone that suits the CPU. Sanitizers
// cannot run the resolver that early.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define STEPCAST_MULTIVERSION \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define STEPCAST_MULTIVERSION
#endif
/// For pieces of a multiversioned function: code that is not inlined stays at the lowest
/// instruction set.
#define STEPCAST_INLINE inline __attribute__((always_inline))
