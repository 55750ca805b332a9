/* plan.h - `exaserved --probe`, `--prepare` and `--plan`: what the job script asks before the world exists. */
#ifndef EXA_RANKS_PLAN_H
#define EXA_RANKS_PLAN_H

#include "base/err.h"

#include <stdint.h>

/* One line on standard output: "EXASERVE-NODE host rack zone" ("-" for an empty field). Run on every node by srun. */
int plan_probe(struct err *e);
/* Check the configuration, make the private run directory with its secret and key, and put the configuration there as serve.yaml. */
int plan_prepare(const char *config_path, const char *run_dir, struct err *e);
/* nodes_file: lines "host rack zone", also with the marker of plan_probe in front; other lines are passed over. Writes layout.json and hosts into
 * attempt_dir and prints the number of ranks and the number of nodes, one a line, on standard output. exclude: comma-separated hosts to leave out, or NULL. */
int plan_make(const char *config_path, const char *run_dir, uint32_t attempt,
              const char *nodes_file, const char *exclude, struct err *e);

#endif
