/* err.c - see err.h. One table maps codes to names, HTTP statuses and exit codes. */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct code_row {
    int code;
    const char *name;
    int http_status;
    int exit_code;
};

static const struct code_row CODES[] = {
    {ERR_AGAIN, "AGAIN", 503, 2},     {ERR_CANCELED, "CANCELED", 499, 1},
    {ERR_TIMEOUT, "TIMEOUT", 504, 3}, {ERR_PEER, "PEER", 502, 2},
    {ERR_LIMIT, "LIMIT", 400, 4},     {ERR_CONFIG, "CONFIG", 400, 4},
    {ERR_FORMAT, "FORMAT", 400, 4},   {ERR_PROTO, "PROTO", 502, 1},
    {ERR_NOMEM, "NOMEM", 503, 1},     {ERR_SYS, "SYS", 500, 1},
    {ERR_DEVICE, "DEVICE", 503, 1},   {ERR_FENCED, "FENCED", 409, 1},
};

static const struct code_row *code_row(int code)
{
    for (size_t i = 0; i < sizeof CODES / sizeof CODES[0]; i++)
        if (CODES[i].code == code)
            return &CODES[i];
    return NULL;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        char text[sizeof e->text];
        vsnprintf(text, sizeof text, fmt,
                  ap); /* through a copy: fmt's arguments may point into e->text */
        va_end(ap);
        e->code = code;
        memcpy(e->text, text, sizeof text);
    }
    return code;
}

int err_sys(struct err *e, int errnum, const char *fmt, ...)
{
    int code = errnum == ENOMEM ? ERR_NOMEM : ERR_SYS;
    if (e) {
        char text[sizeof e->text];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        return err_set(e, code, "%s: %s", text, strerror(errnum));
    }
    return code;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
    if (!e)
        return ERR_SYS;
    char prefix[sizeof e->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    return err_set(e, e->code ? e->code : ERR_SYS, "%s%s", prefix, e->text);
}

const char *err_name(int code)
{
    const struct code_row *row = code_row(code);
    return row ? row->name : "UNKNOWN";
}

int err_http_status(int code)
{
    const struct code_row *row = code_row(code);
    return row ? row->http_status : 500;
}

int err_exit_code(int code)
{
    const struct code_row *row = code_row(code);
    return row ? row->exit_code : 1;
}

_Noreturn void check_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, cond);
    abort();
}
