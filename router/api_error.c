/* api_error.c - see api_error.h. */
#include "router/api_error.h"

#include "router/json_text.h"

#include <stdarg.h>
#include <stdio.h>

int api_fail(struct api_error *a, int status, const char *type, const char *param, const char *code,
             const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char message[sizeof a->message]; /* through a copy: arguments may point into a */
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    char name[sizeof a->param];
    snprintf(name, sizeof name, "%s", param ? param : "");
    *a = (struct api_error){.status = (uint16_t)status, .type = type, .code = code};
    memcpy(a->message, message, sizeof message);
    memcpy(a->param, name, sizeof name);
    return -1;
}

void api_error_put(struct buf *b, const struct api_error *a)
{
    buf_puts(b, "{\"error\":{\"message\":");
    json_put_string(b, a->message);
    buf_puts(b, ",\"type\":");
    json_put_string(b, a->type);
    buf_puts(b, ",\"param\":");
    json_put_string(b, a->param[0] ? a->param : NULL);
    buf_puts(b, ",\"code\":");
    json_put_string(b, a->code);
    if (a->state) {
        buf_puts(b, ",\"state\":");
        json_put_string(b, a->state);
        buf_puts(b, ",\"progress\":");
        json_put_string(b, a->progress ? a->progress : "");
    }
    buf_puts(b, "}}");
}
