/* hf_tokenizer.h - the tokenizer of a Hugging Face model folder: tokenizer.json, and what its neighbours add.
 *
 * Reads FOLDER/tokenizer.json (vocabulary, merges or scores, added tokens, normalizer, pre-tokenizer, post-processor,
 * decoder) and, where they are there, tokenizer_config.json (bos, eos, unk and pad tokens, chat template),
 * special_tokens_map.json, generation_config.json and config.json (ids that end a generation), chat_template.jinja.
 * Source: the file format of the `tokenizers` library. What the file asks for and no tokenizer here follows is refused by its
 * name: another answer than the reference's is worse than none.
 */
#ifndef EXA_MODEL_HF_TOKENIZER_H
#define EXA_MODEL_HF_TOKENIZER_H

#include "model/meta.h"

/* Fills m->tok and, where the folder has one, m->chat_template; nothing else of m is touched. m is initialised (meta_init); the
 * caller calls meta_fini also on failure. ERR_FORMAT names the file, the place in it, expected and found; ERR_LIMIT: larger
 * than META_MAX_VOCAB and the other caps of meta.h; ERR_SYS: cannot be read. */
int hf_tokenizer_read(const char *folder, struct model_meta *m, struct err *e);

/* The same from bytes: the text of tokenizer.json alone (fuzzing, tests). `label` names it in errors. */
int hf_tokenizer_parse(const char *label, const char *json, size_t n, struct tokenizer_data *t,
                       struct err *e);

#endif
