/* clock.c - see clock.h. */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

static uint64_t read_us(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

uint64_t clock_now_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

uint64_t clock_wall_us(void)
{
    return read_us(CLOCK_REALTIME);
}

void clock_sleep_us(uint64_t us)
{
    struct timespec ts = {(time_t)(us / 1000000u), (long)(us % 1000000u) * 1000};
    while (nanosleep(&ts, &ts) != 0 && errno == EINTR) {
    }
}
