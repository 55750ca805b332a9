/* clock.h - monotonic time in microseconds. Pure control logic never calls this: it is handed `now_us` with each event. */
#ifndef EXA_BASE_CLOCK_H
#define EXA_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_now_us(void);  /* CLOCK_MONOTONIC */
uint64_t clock_wall_us(void); /* CLOCK_REALTIME, for what people and other machines read */
void clock_sleep_us(uint64_t us);

#endif
