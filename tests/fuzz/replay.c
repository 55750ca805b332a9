/* replay.c - feeds every file of the files and folders given as arguments to a fuzz target, one
 * TAP line each. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int n_done, n_failed;

static void report(int ok, const char *path, const char *why)
{
    n_done++;
    n_failed += !ok;
    printf("%s %d - %s%s%s\n", ok ? "ok" : "not ok", n_done, path, *why ? ": " : "", why);
    fflush(stdout); /* a crash in the next file leaves this line */
}

/* An exact-size copy, so that a sanitizer sees any read past its end. */
static void replay_file(const char *path, size_t size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1);
    if (!f || !data || fread(data, 1, size, f) != size) {
        report(0, path, "cannot read");
    } else {
        LLVMFuzzerTestOneInput(data, size);
        report(1, path, "");
    }
    free(data);
    if (f)
        fclose(f);
}

static void replay(const char *path, int depth)
{
    enum { MAX_DEPTH = 8 };
    struct stat st;
    if (stat(path, &st) != 0) {
        report(0, path, "no such file");
        return;
    }
    if (!S_ISDIR(st.st_mode)) {
        replay_file(path, (size_t)st.st_size);
        return;
    }
    struct dirent **entries;
    int n = depth < MAX_DEPTH ? scandir(path, &entries, NULL, alphasort) : -1;
    if (n < 0) {
        report(0, path, "cannot read the folder");
        return;
    }
    for (int i = 0; i < n; i++) {
        char below[4096];
        int len = snprintf(below, sizeof below, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && len > 0 && (size_t)len < sizeof below)
            replay(below, depth + 1);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        replay(argv[i], 0);
    if (n_done == 0)
        report(0, "corpus", "no files given");
    printf("1..%d\n", n_done);
    return n_failed != 0;
}
