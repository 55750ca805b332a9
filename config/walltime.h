/* walltime.h - Slurm's notation of a time limit, as man sbatch gives it:
 * minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes,
 * days-hours:minutes:seconds; also UNLIMITED and INFINITE.
 */
#ifndef EXA_CONFIG_WALLTIME_H
#define EXA_CONFIG_WALLTIME_H

#include <stdbool.h>
#include <stdint.h>

/* Seconds; 0 for no limit. false: not Slurm's notation, or a limit of zero. */
bool walltime_parse(const char *text, uint64_t *seconds);

#endif
