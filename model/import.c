/* import.c - see import.h. */
#include "model/import.h"

#include "model/hf_tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What else people point at, so that the error can say so. */
static const char *kind_of(const char *path)
{
    char head[16] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : read(fd, head, sizeof head);
    if (fd >= 0)
        close(fd);
    size_t length = strlen(path);
    if (n >= 8 && memcmp(head, "\x89HDF\r\n\x1a\n", 8) == 0)
        return "an HDF5 file: is it a pack already?";
    if (length > 12 && strcmp(path + length - 12, ".safetensors") == 0)
        return "one safetensors file: name its folder, which has config.json and tokenizer.json, "
               "too";
    if (n >= 4 && memcmp(head, "PK\3\4", 4) == 0)
        return "a zip or PyTorch file: only safetensors are read";
    if (n >= 1 && head[0] == '{')
        return "a JSON file: name its folder";
    return NULL;
}

int import_open(struct import *m, const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return err_sys(e, errno, "cannot look at %s", path);
    *m = (struct import){.is_hf = S_ISDIR(st.st_mode)};
    const char *other = m->is_hf ? NULL : kind_of(path);
    if (other)
        return err_set(e, ERR_FORMAT, "%s: expected a GGUF file or a Hugging Face folder, found %s",
                       path, other);
    int rc = m->is_hf ? hf_open(&m->hf, path, hf_tokenizer_read, e) : gguf_open(&m->gguf, path, e);
    if (rc)
        return rc;
    m->kind = m->is_hf ? "Hugging Face" : "GGUF";
    m->meta = m->is_hf ? &m->hf.meta : &m->gguf.meta;
    m->index = m->is_hf ? &m->hf.index : &m->gguf.index;
    m->source = m->is_hf ? hf_source(&m->hf) : source_mapped(m->gguf.tensor_data);
    return 0;
}

void import_close(struct import *m)
{
    if (!m->kind)
        return;
    if (m->is_hf)
        hf_close(&m->hf);
    else
        gguf_close(&m->gguf);
    m->kind = NULL;
}
