/* grammar_judge.h - asking tests/tools/grammar_judge.py. */
#ifndef EXA_TESTS_GRAMMAR_JUDGE_H
#define EXA_TESTS_GRAMMAR_JUDGE_H

#include "tests/unit/grammar_support.h"

#include <unistd.h>
#include <jansson.h>

static inline json_t *judge(const char *arguments)
{
    const char *python = access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3";
    char command[512];
    snprintf(command, sizeof command, "%s tests/tools/grammar_judge.py %s", python, arguments);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    json_error_t error;
    json_t *root = json_loadf(f, JSON_ALLOW_NUL, &error);
    int status = pclose(f);
    if (!root || status)
        fail_msg("%s: status %d, %s (is python3-jsonschema installed?)", command, status,
                 error.text);
    return root;
}

/* file: [{"schema", "texts"}], of which every text must be valid. */
static inline void judge_validates(json_t *file)
{
    char path[] = "/tmp/exaserve-grammar-XXXXXX", arguments[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(json_dumpfd(file, fd, 0), 0);
    close(fd);
    snprintf(arguments, sizeof arguments, "validate %s", path);
    json_t *bad = judge(arguments);
    unlink(path);
    if (json_array_size(bad))
        fail_msg("%zu are not valid; the first: %s", json_array_size(bad),
                 json_dumps(json_array_get(bad, 0), 0));
    json_decref(bad);
}

#endif
