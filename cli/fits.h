/* fits.h - can this model be served as the configuration says? Asked before a job waits in a queue for an engine that would refuse. */
#ifndef EXA_CLI_FITS_H
#define EXA_CLI_FITS_H

#include "base/err.h"
#include "config/config.h"

/* Opens m->pack; reads no weights. ERR_CONFIG, ERR_FORMAT: the key and what does not fit, expected and found. */
int model_fits(const struct config_model *m, struct err *e);

#endif
