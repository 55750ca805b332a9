/* amx_usable.h - does this CPU have AMX, does the system keep its registers, may this process use them, and do they compute what plain C
 * computes? A virtual machine may announce what it does not carry through: a wrong product is found here, not in somebody's text.
 */
#ifndef EXA_ENGINE_CPU_AMX_USABLE_H
#define EXA_ENGINE_CPU_AMX_USABLE_H

#include <cpuid.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/cpu/tile.h"

/* One product of whole tiles: 16 rows of 64 signed bytes times 64 rows of 16 unsigned ones. */
static inline bool amx_computes(void)
{
    enum { ROWS = 16, BYTES = 64 };
    struct tile_shapes shapes = {.palette = 1};
    int8_t a[ROWS][BYTES];
    uint8_t b[ROWS][BYTES]; /* four rows of the product's k at once */
    int32_t sum[ROWS][ROWS];
    for (int t = 0; t < 3; t++) {
        shapes.row_bytes[t] = BYTES;
        shapes.rows[t] = ROWS;
    }
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < BYTES; k++) {
            a[i][k] = (int8_t)(i * 37 + k * 11 - 128);
            b[i][k] = (uint8_t)(i * 53 + k * 29);
        }
    tile_configure(&shapes);
    tile_zero(0);
    tile_load(1, a, BYTES);
    tile_load(2, b, BYTES);
    tile_dot(0, 1, 2);
    tile_store(0, sum, BYTES);
    tile_release();
    for (int i = 0; i < ROWS; i++)
        for (int n = 0; n < ROWS; n++) {
            int32_t want = 0;
            for (int k = 0; k < BYTES; k++)
                want += a[i][k] * b[k / 4][4 * n + k % 4];
            if (sum[i][n] != want)
                return false;
        }
    return true;
}

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
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILEDATA) == 0 && amx_computes();
}

#endif
