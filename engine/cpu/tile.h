/* tile.h - the eight AMX tile registers: the few instructions that kernels use, or, with TILE_EMULATED, the same in plain C, so that
 * what is built on them is tested on machines without AMX.
 *
 * A tile is up to 16 rows of up to 64 bytes (Intel SDM vol. 1, ch. 18). Shapes are set by tile_shapes for this thread and hold until
 * tile_release. Register numbers are constants. The configuration is our own asm: GCC 12.2's intrinsic names only 8 of the 64 bytes as
 * its input, and the compiler drops the others.
 */
#ifndef EXA_ENGINE_CPU_TILE_H
#define EXA_ENGINE_CPU_TILE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct tile_shapes {
    uint8_t palette, start_row, unused[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_shapes) == 64, "what ldtilecfg reads");

#ifndef TILE_EMULATED

static inline void tile_configure(const struct tile_shapes *s)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*s));
}
static inline void tile_release(void)
{
    __asm__ volatile("tilerelease" : : : "memory");
}
#define tile_zero(t) __asm__ volatile("tilezero %%tmm" #t : : : "memory")
#define tile_load(t, from, stride)                                                                 \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t                                               \
                     :                                                                             \
                     : "r"((const void *)(from)), "r"((size_t)(stride))                            \
                     : "memory")
#define tile_store(t, to, stride)                                                                  \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)"                                           \
                     :                                                                             \
                     : "r"((void *)(to)), "r"((size_t)(stride))                                    \
                     : "memory")
/* sum += signed bytes of a times unsigned bytes of b */
#define tile_dot(sum, a, b)                                                                        \
    __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : : : "memory")
/* sum += pairs of bfloat16 */
#define tile_dot_bf16(sum, a, b)                                                                   \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : : : "memory")

#else

struct tile_state {
    struct tile_shapes shapes;
    uint8_t data[8][16][64];
};
static _Thread_local struct tile_state tile_state;

static inline void tile_configure(const struct tile_shapes *s)
{
    memset(&tile_state, 0, sizeof tile_state);
    tile_state.shapes = *s;
}
static inline void tile_release(void)
{
    memset(&tile_state.shapes, 0, sizeof tile_state.shapes);
}
static inline void tile_zero(int t)
{
    memset(tile_state.data[t], 0, sizeof tile_state.data[t]);
}
static inline void tile_load(int t, const void *from, size_t stride)
{
    tile_zero(t);
    for (int r = 0; r < tile_state.shapes.rows[t]; r++)
        memcpy(tile_state.data[t][r], (const uint8_t *)from + (size_t)r * stride,
               tile_state.shapes.row_bytes[t]);
}
static inline void tile_store(int t, void *to, size_t stride)
{
    for (int r = 0; r < tile_state.shapes.rows[t]; r++)
        memcpy((uint8_t *)to + (size_t)r * stride, tile_state.data[t][r],
               tile_state.shapes.row_bytes[t]);
}
static inline void tile_dot(int sum, int a, int b)
{
    const struct tile_shapes *s = &tile_state.shapes;
    for (int m = 0; m < s->rows[sum]; m++)
        for (int k = 0; k < s->row_bytes[a] / 4; k++)
            for (int n = 0; n < s->row_bytes[sum] / 4; n++) {
                int32_t v;
                memcpy(&v, &tile_state.data[sum][m][4 * n], 4);
                for (int i = 0; i < 4; i++)
                    v +=
                        (int8_t)tile_state.data[a][m][4 * k + i] * tile_state.data[b][k][4 * n + i];
                memcpy(&tile_state.data[sum][m][4 * n], &v, 4);
            }
}
static inline float tile_bf16(const uint8_t *p)
{
    uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
/* Even and odd elements are summed apart, each addition rounded once, then both go onto the sum. */
static inline void tile_dot_bf16(int sum, int a, int b)
{
    const struct tile_shapes *s = &tile_state.shapes;
    for (int m = 0; m < s->rows[sum]; m++)
        for (int n = 0; n < s->row_bytes[sum] / 4; n++) {
            float v, part[2] = {0, 0};
            for (int k = 0; k < s->row_bytes[a] / 4; k++)
                for (int i = 0; i < 2; i++)
                    part[i] =
                        __builtin_fmaf(tile_bf16(&tile_state.data[a][m][4 * k + 2 * i]),
                                       tile_bf16(&tile_state.data[b][k][4 * n + 2 * i]), part[i]);
            memcpy(&v, &tile_state.data[sum][m][4 * n], 4);
            v += part[0] + part[1];
            memcpy(&tile_state.data[sum][m][4 * n], &v, 4);
        }
}

#endif
#endif
