/* check.h - faults in a scanned serve.yaml, told with file and line. */
#ifndef EXA_CONFIG_CHECK_H
#define EXA_CONFIG_CHECK_H

#include "config/config.h"
#include "config/scan.h"

/* Keys, kinds and single values against the option table. */
int check_entries(const struct scan *s, const char *file, struct err *e);
/* Values that do not fit together. */
int check_whole(const struct config *c, const struct scan *s, const char *file, struct err *e);
/* What is wanted against the number of nodes. */
int check_nodes(const struct config *c, uint32_t nodes, const struct scan *s, const char *file,
                struct err *e);

#endif
