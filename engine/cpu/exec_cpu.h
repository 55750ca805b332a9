/* exec_cpu.h - where CPU operations run: a thread pool, one kernel set, and scratch memory for each thread. */
#ifndef EXA_ENGINE_CPU_EXEC_CPU_H
#define EXA_ENGINE_CPU_EXEC_CPU_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/pool.h"

extern const struct ops OPS_CPU;

/* max_cols: widest weight row; max_kv: longest context. */
int exec_cpu_create(struct exec **out, const struct kernels *k, uint32_t n_threads,
                    uint32_t max_cols, uint32_t max_kv, struct err *e);
void exec_cpu_destroy(struct exec *x);
uint64_t exec_cpu_scratch_bytes(uint32_t n_threads, uint32_t max_cols, uint32_t max_kv);
/* Time that operations took, on the calling thread's clock: what a step spends beside it is bookkeeping. */
uint64_t exec_cpu_busy_us(const struct exec *x);

#endif
