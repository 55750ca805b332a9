/* say.c - see say.h. Text that came from elsewhere (logs, servers) is cleaned of control characters: it must not steer a terminal. */
#include "cli/say.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TAIL_BYTES = 16 * 1024 };

int say_error(const char *command, const struct err *e)
{
    fprintf(stderr, "exaserve %s: %s\n", command, e->text);
    return err_exit_code(e->code);
}

size_t say_control(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    if (n && (p[0] < ' ' || p[0] == 0x7f))
        return 1;
    return n > 1 && p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f ? 2 : 0;
}

char *say_clean(char *s)
{
    for (char *p = s; *p; p++)
        for (size_t n = say_control(p, strlen(p)); n; n--)
            p[n - 1] = ' ';
    return s;
}

void say_progress(struct progress_line *p, const char *fmt, ...)
{
    char line[sizeof p->last], when[16];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    say_clean(line);
    if (strcmp(line, p->last) == 0)
        return;
    memcpy(p->last, line, sizeof line);
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    strftime(when, sizeof when, "%H:%M:%S", &tm);
    fprintf(stderr, "%s %s\n", when, line);
}

void say_log_tail(const char *path, unsigned lines)
{
    char text[TAIL_BYTES + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    off_t size = lseek(fd, 0, SEEK_END);
    off_t from = size > TAIL_BYTES ? size - TAIL_BYTES : 0;
    ssize_t n = size > 0 ? pread(fd, text, TAIL_BYTES, from) : 0;
    close(fd);
    if (n <= 0)
        return;
    text[n] = 0;
    char *p = text + n;
    for (unsigned seen = 0; p > text; p--)
        if (p[-1] == '\n' && p != text + n && ++seen == lines)
            break;
    fprintf(stderr, "the last lines of %s:\n", path);
    char *rest = NULL;
    for (char *line = strtok_r(p, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        say_clean(line);
        fprintf(stderr, "  | %s\n", line);
    }
}

const char *say_duration(uint64_t s, char out[32])
{
    if (s >= 86400)
        snprintf(out, 32, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s % 86400 / 3600);
    else if (s >= 3600)
        snprintf(out, 32, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s % 3600 / 60);
    else if (s >= 60)
        snprintf(out, 32, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
    else
        snprintf(out, 32, "%" PRIu64 " s", s);
    return out;
}
