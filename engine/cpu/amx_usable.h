/* amx_usable.h - does this CPU have AMX, does the system keep its registers, and may this process use them? */
#ifndef EXA_ENGINE_CPU_AMX_USABLE_H
#define EXA_ENGINE_CPU_AMX_USABLE_H

#include <cpuid.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline bool amx_usable(void)
{
    enum {
        ARCH_REQ_XCOMP_PERM = 0x1023, /* asm/prctl.h; Linux 5.16 */
        XFEATURE_TILEDATA = 18,
        TILE_STATE = 3 << 17, /* XCR0: configuration and data */
        BF16 = 1 << 22,
        TILE = 1 << 24,
        INT8 = 1 << 25,
        OSXSAVE = 1 << 27,
    };
    unsigned a, b, c = 0, d = 0, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & OSXSAVE) ||
        !__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
        (d & (BF16 | TILE | INT8)) != (BF16 | TILE | INT8))
        return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & TILE_STATE) == TILE_STATE &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILEDATA) == 0;
}

#endif
