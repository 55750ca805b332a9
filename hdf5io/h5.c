/* h5.c - see h5.h. */
#include "hdf5io/h5.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void h5_quiet_begin(struct h5_quiet *q)
{
    /* A damaged file leaves pieces of its metadata in HDF5 1.10's free lists; its clean-up at exit
     * then prints about an "infinite loop". Nothing needs that clean-up: every file is closed here.
     */
    H5dont_atexit();
    H5Eget_auto2(H5E_DEFAULT, &q->fn, &q->ctx);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void h5_quiet_end(const struct h5_quiet *q)
{
    H5Eset_auto2(H5E_DEFAULT, q->fn, q->ctx);
}

static herr_t keep_first(unsigned n, const H5E_error2_t *row, void *ctx)
{
    char *text = ctx;
    if (!text[0] && row->desc)
        snprintf(text, 256, "%s", row->desc);
    return 0;
}

int h5_error(struct err *e, int code, const char *fmt, ...)
{
    char what[sizeof e->text], why[256] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    /* Upward: the place of the fault comes first. */
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, why);
    H5Eclear2(H5E_DEFAULT);
    const char *at = strstr(why, "errno = "); /* a failed system call, told in several lines */
    int errnum = at ? atoi(at + strlen("errno = ")) : 0;
    if (errnum == ENOSPC || errnum == EDQUOT)
        return err_set(e, ERR_LIMIT, "%s: %s", what, strerror(errnum));
    if (errnum)
        return err_sys(e, errnum, "%s", what);
    why[strcspn(why, "\n")] = 0;
    return err_set(e, code, why[0] ? "%s: %s" : "%s", what, why);
}

int h5_group_create(hid_t where, const char *name, hid_t *out, struct err *e)
{
    hid_t list = H5Pcreate(H5P_GROUP_CREATE), group = -1;
    if (list >= 0 && H5Pset_obj_track_times(list, 0) >= 0)
        group = H5Gcreate2(where, name, H5P_DEFAULT, list, H5P_DEFAULT);
    int rc = group < 0 ? h5_error(e, ERR_SYS, "cannot create group %s", name) : 0;
    h5_close_list(list);
    *out = group;
    return rc;
}

void h5_close_group(hid_t id)
{
    if (id >= 0)
        H5Gclose(id);
}
void h5_close_data(hid_t id)
{
    if (id >= 0)
        H5Dclose(id);
}
void h5_close_space(hid_t id)
{
    if (id >= 0)
        H5Sclose(id);
}
void h5_close_type(hid_t id)
{
    if (id >= 0)
        H5Tclose(id);
}
void h5_close_attr(hid_t id)
{
    if (id >= 0)
        H5Aclose(id);
}
void h5_close_list(hid_t id)
{
    if (id >= 0)
        H5Pclose(id);
}

hid_t h5_string_type(void)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 &&
        (H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        H5Tclose(type);
        return -1;
    }
    return type;
}

/* One attribute of `type` in `space`, both closed here. */
static int attr_write(hid_t where, const char *name, hid_t file_type, hid_t memory_type,
                      hid_t space, const void *value, struct err *e)
{
    hid_t attr = -1;
    if (space >= 0 && file_type >= 0)
        attr = H5Acreate2(where, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
    int rc = 0;
    if (attr < 0 || H5Awrite(attr, memory_type, value) < 0)
        rc = h5_error(e, ERR_SYS, "cannot write attribute %s", name);
    h5_close_attr(attr);
    h5_close_space(space);
    return rc;
}

int h5_attr_text(hid_t where, const char *name, const char *text, struct err *e)
{
    /* A fixed length: the attribute holds its bytes itself, with no heap that a reader must follow.
     */
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 &&
        (H5Tset_size(type, strlen(text) + 1) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        H5Tclose(type);
        type = -1;
    }
    int rc = attr_write(where, name, type, type, H5Screate(H5S_SCALAR), text, e);
    h5_close_type(type);
    return rc;
}

int h5_attr_i64(hid_t where, const char *name, int64_t value, struct err *e)
{
    return attr_write(where, name, H5T_STD_I64LE, H5T_NATIVE_INT64, H5Screate(H5S_SCALAR), &value,
                      e);
}

int h5_attr_f64(hid_t where, const char *name, double value, struct err *e)
{
    return attr_write(where, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, H5Screate(H5S_SCALAR), &value,
                      e);
}

int h5_attr_u64s(hid_t where, const char *name, const uint64_t *values, size_t n, struct err *e)
{
    hsize_t dims = n;
    return attr_write(where, name, H5T_STD_U64LE, H5T_NATIVE_UINT64,
                      H5Screate_simple(1, &dims, NULL), values, e);
}

int h5_data_bytes(hid_t where, const char *name, const void *data, uint64_t n, hid_t *out,
                  struct err *e)
{
    hsize_t dims = n;
    hid_t space = H5Screate_simple(1, &dims, NULL), list = H5Pcreate(H5P_DATASET_CREATE), set = -1;
    int rc = 0;
    /* Space now, so that the place in the file is known; no filling, every byte is written. */
    if (space >= 0 && list >= 0 && H5Pset_layout(list, H5D_CONTIGUOUS) >= 0 &&
        H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY) >= 0 &&
        H5Pset_fill_time(list, H5D_FILL_TIME_NEVER) >= 0 && H5Pset_obj_track_times(list, 0) >= 0)
        set = H5Dcreate2(where, name, H5T_STD_U8LE, space, H5P_DEFAULT, list, H5P_DEFAULT);
    if (set < 0)
        rc = h5_error(e, ERR_SYS, "cannot create dataset %s", name);
    else if (data && H5Dwrite(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        rc = h5_error(e, ERR_SYS, "cannot write dataset %s", name);
    h5_close_space(space);
    h5_close_list(list);
    if (rc || !out)
        h5_close_data(set);
    else
        *out = set;
    return rc;
}

int h5_data_strings(hid_t where, const char *name, const char *const *strings, size_t n,
                    bool scalar, struct err *e)
{
    hsize_t dims = n;
    hid_t type = h5_string_type(), list = H5Pcreate(H5P_DATASET_CREATE), set = -1;
    hid_t space = scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &dims, NULL);
    int rc = 0;
    if (type >= 0 && space >= 0 && list >= 0 && H5Pset_obj_track_times(list, 0) >= 0)
        set = H5Dcreate2(where, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    if (set < 0 || (n && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, strings) < 0))
        rc = h5_error(e, ERR_SYS, "cannot write dataset %s", name);
    h5_close_data(set);
    h5_close_list(list);
    h5_close_space(space);
    h5_close_type(type);
    return rc;
}
