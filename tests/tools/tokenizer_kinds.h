/* tokenizer_kinds.h - a small tokenizer of each kind as the text of a tokenizer.json, for tests of
 * all of them. */
#ifndef EXA_TESTS_TOKENIZER_KINDS_H
#define EXA_TESTS_TOKENIZER_KINDS_H

#include "base/buf.h"
#include "model/hf_tokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#include <stdio.h>
#include <stdlib.h>

enum tokenizer_sample {
    SAMPLE_BYTES,     /* byte-level BPE, Llama 3's expression */
    SAMPLE_GPT2,      /* byte-level BPE, GPT-2's expression, a space first, NFC */
    SAMPLE_REGEX,     /* byte-level BPE, an expression for PCRE2 */
    SAMPLE_SPM,       /* SentencePiece BPE with byte fallback */
    SAMPLE_UNIGRAM,   /* NFKC, Metaspace, unknown text fused */
    SAMPLE_UNIBYTES,  /* Strip, Metaspace at the beginning, byte fallback */
    SAMPLE_WORDPIECE, /* BERT's */
    SAMPLE_CLIP,      /* end_of_word_suffix, a normalised added token */
    N_SAMPLES,
};

#define SAMPLE_SIGN "\xE2\x96\x81"

static inline void sample_letters(struct buf *out)
{
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; b++) {
        bool own = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        char text[5] = "";
        utf8_encode(own ? b : next++, text);
        bool escaped = text[0] == '"' || text[0] == '\\';
        buf_printf(out, "%s\"%s%s\":%u", b ? "," : "", escaped ? "\\" : "", text, b);
    }
}

static inline void sample_bytes_of(struct buf *out, unsigned first, const char *form)
{
    for (unsigned b = 0; b < 256; b++) {
        buf_printf(out, b ? "," : "");
        if (*form == ':')
            buf_printf(out, "\"<0x%02X>\":%u", b, first + b);
        else
            buf_printf(out, "[\"<0x%02X>\",-20]", b);
    }
}

#define SAMPLE_ADDED                                                                               \
    "\"added_tokens\":[{\"id\":400,\"content\":\"<s>\",\"special\":true},"                         \
    "{\"id\":401,\"content\":\"<sep>\",\"special\":true,\"lstrip\":true,\"rstrip\":true},"         \
    "{\"id\":402,\"content\":\"<tool>\",\"special\":false,\"single_word\":true},"                  \
    "{\"id\":403,\"content\":\"<tools>\",\"special\":false,\"normalized\":true}],"

static inline void sample_byte_level(struct buf *out, const char *steps)
{
    buf_puts(out, "{" SAMPLE_ADDED);
    buf_puts(out, steps);
    buf_puts(out, ",\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    sample_letters(out);
    buf_puts(out,
             ",\"aa\":256,\"aaaa\":257,\"aaaaaaaa\":258,\"\xC4\xA0\xC4\xA0\":259,\"ab\":260,"
             "\"abc\":261,\"bc\":262,\"\xC4\xA0"
             "a\":263,\"\xC3\x83\xC2\xA9\":264,\"12\":265,\"!!\":266,\"\xC4\x8A\xC4\x8A\":267},"
             "\"merges\":[\"a a\",\"aa aa\",\"aaaa aaaa\",\"\xC4\xA0 \xC4\xA0\",\"a b\","
             "\"ab c\",\"b c\",\"a bc\",\"\xC4\xA0 a\",\"\xC3\x83 \xC2\xA9\",\"1 2\",\"! !\","
             "\"\xC4\x8A \xC4\x8A\"]}}");
}

static inline void sample_spm(struct buf *out)
{
    buf_puts(out,
             "{" SAMPLE_ADDED
             "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
             "\"prepend\":\"" SAMPLE_SIGN "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" "
             "\"},\"content\":\"" SAMPLE_SIGN "\"}]},\"decoder\":{\"type\":\"Sequence\","
             "\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" SAMPLE_SIGN
             "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":"
             "\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},\"model\":{\"type\":\"BPE\","
             "\"byte_fallback\":true,\"fuse_unk\":true,\"unk_token\":\"<unk>\",\"vocab\":{");
    sample_bytes_of(out, 0, ":");
    buf_puts(out,
             ",\"<unk>\":256,\"" SAMPLE_SIGN "\":257,\"a\":258,\"b\":259,\"aa\":260,\"aaaa\":261,"
             "\"" SAMPLE_SIGN "a\":262,\"" SAMPLE_SIGN SAMPLE_SIGN "\":263,\"\xC3\xA9\":264,"
             "\"ab\":265},\"merges\":[[\"a\",\"a\"],[\"aa\",\"aa\"],[\"" SAMPLE_SIGN
             "\",\"a\"],[\"" SAMPLE_SIGN "\",\"" SAMPLE_SIGN "\"],[\"a\",\"b\"]]}}");
}

static inline void sample_unigram(struct buf *out, bool bytes)
{
    buf_puts(out, "{" SAMPLE_ADDED "\"normalizer\":");
    buf_puts(out, bytes ? "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}"
                        : "{\"type\":\"NFKC\"}");
    buf_printf(out,
               ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" SAMPLE_SIGN
               "\",\"prepend_scheme\":\"%s\",\"split\":true},\"decoder\":{\"type\":\"Sequence\","
               "\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Metaspace\",\"replacement\":"
               "\"" SAMPLE_SIGN
               "\",\"prepend_scheme\":\"%s\",\"split\":true}]},\"model\":{\"type\":"
               "\"Unigram\",\"unk_id\":0,\"byte_fallback\":%s,\"vocab\":[[\"<unk>\",0],",
               bytes ? "first" : "always", bytes ? "first" : "always", bytes ? "true" : "false");
    if (bytes) {
        sample_bytes_of(out, 1, "[");
        buf_puts(out, ",");
    }
    buf_puts(out, "[\"" SAMPLE_SIGN "\",-2],[\"a\",-3],[\"aa\",-4],[\"aaaa\",-4.5],[\"b\",-3.5],"
                  "[\"ab\",-5],[\"" SAMPLE_SIGN "a\",-3.25],[\"\xC3\xA9\",-6]]}}");
}

static inline void sample_json(enum tokenizer_sample kind, struct buf *out)
{
    static const char LLAMA3[] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
        "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+";
    static const char OWN[] = "\\\\p{L}+|\\\\d{,3}|(?<=a)\\\\s+\\\\b|[^\\\\w\\\\s]+?(?=!)";
    char steps[1024];
    switch (kind) {
    case SAMPLE_BYTES:
    case SAMPLE_REGEX:
        snprintf(steps, sizeof steps,
                 "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
                 "\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"%s\",\"invert\":false},{\"type\":"
                 "\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}",
                 kind == SAMPLE_BYTES ? LLAMA3 : OWN,
                 kind == SAMPLE_BYTES ? "Isolated" : "MergedWithPrevious");
        sample_byte_level(out, steps);
        break;
    case SAMPLE_GPT2:
        sample_byte_level(out, "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":"
                               "\"ByteLevel\",\"add_prefix_space\":true}");
        break;
    case SAMPLE_SPM:
        sample_spm(out);
        break;
    case SAMPLE_UNIGRAM:
    case SAMPLE_UNIBYTES:
        sample_unigram(out, kind == SAMPLE_UNIBYTES);
        break;
    case SAMPLE_WORDPIECE:
        buf_puts(out, "{" SAMPLE_ADDED "\"normalizer\":{\"type\":\"BertNormalizer\"},"
                      "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"decoder\":{\"type\":"
                      "\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},\"model\":{\"type\":"
                      "\"WordPiece\",\"max_input_chars_per_word\":1000,\"vocab\":{\"[UNK]\":0,"
                      "\"a\":1,\"##a\":2,\"##aaaa\":3,\"b\":4,\"##b\":5,\"!\":6,\"ab\":7}}}");
        break;
    default:
        buf_puts(out,
                 "{" SAMPLE_ADDED "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{"
                 "\"type\":\"NFKD\"},{\"type\":\"StripAccents\"},{\"type\":\"Lowercase\"}]},"
                 "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                 "\"Whitespace\"},{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"},{"
                 "\"type\":\"Digits\",\"individual_digits\":false}]},\"model\":{\"type\":\"BPE\","
                 "\"unk_token\":\"?\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"?\":0,"
                 "\"a\":1,\"b\":2,\"a</w>\":3,\"b</w>\":4,\"aa\":5,\"aa</w>\":6},\"merges\":["
                 "\"a a\",\"a a</w>\"]}}");
    }
}

/* NULL, and why, if it is refused. */
static inline struct tokenizer *sample_create(enum tokenizer_sample kind, struct err *e)
{
    struct buf json;
    struct model_meta m;
    struct tokenizer *t = NULL;
    meta_init(&m);
    buf_init(&json, 1 << 20);
    sample_json(kind, &json);
    if (hf_tokenizer_parse("sample", (const char *)json.data, json.len, &m.tok, e) ||
        tokenizer_create(&t, &m.tok, e))
        t = NULL;
    meta_fini(&m);
    buf_fini(&json);
    return t;
}

#endif
