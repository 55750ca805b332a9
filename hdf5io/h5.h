/* h5.h - small helpers over the HDF5 C API: quiet errors turned into one sentence, attributes,
 * plain datasets.
 *
 * Inside the room only. HDF5 prints its error stack by itself unless told otherwise: every public
 * function of the room works between h5_quiet_begin and h5_quiet_end. Not thread-safe, as HDF5
 * itself.
 */
#ifndef EXA_HDF5IO_H5_H
#define EXA_HDF5IO_H5_H

#include "base/err.h"

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

struct h5_quiet {
    H5E_auto2_t fn;
    void *ctx;
};
void h5_quiet_begin(struct h5_quiet *q);
void h5_quiet_end(const struct h5_quiet *q);

/* Set e from a sentence and the innermost message of HDF5's error stack. ERR_LIMIT when that says
 * that the disk is full. */
int h5_error(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Nothing made here keeps the time of its making: equal models give equal files, but for the root
 * group's times. */

/* *out: the new group, -1 on failure. */
int h5_group_create(hid_t where, const char *name, hid_t *out, struct err *e);

/* Close what is open (>= 0) of a kind. */
void h5_close_group(hid_t id);
void h5_close_data(hid_t id);
void h5_close_space(hid_t id);
void h5_close_type(hid_t id);
void h5_close_attr(hid_t id);
void h5_close_list(hid_t id);

/* A variable-length UTF-8 string type; the caller closes it. */
hid_t h5_string_type(void);

/* Attributes. `what` of the error is the attribute's name. */
int h5_attr_text(hid_t where, const char *name, const char *text, struct err *e);
int h5_attr_i64(hid_t where, const char *name, int64_t value, struct err *e);
int h5_attr_f64(hid_t where, const char *name, double value, struct err *e);
int h5_attr_u64s(hid_t where, const char *name, const uint64_t *values, size_t n, struct err *e);

/* A contiguous uint8[n] dataset of these bytes, n not 0; data NULL: created with its space, not
 * written. *out (may be NULL) is left open. */
int h5_data_bytes(hid_t where, const char *name, const void *data, uint64_t n, hid_t *out,
                  struct err *e);
/* A dataset of n strings; scalar: n is 1 and the dataset has no dimension. */
int h5_data_strings(hid_t where, const char *name, const char *const *strings, size_t n,
                    bool scalar, struct err *e);

#endif
