/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the texts of tags. */
#include "base/status.h"
#include "base/thread/process.h"
#include "base/utf8.h"
#include "record/intern.h"

#include <string.h>
#include <tarn/memory.h>

#define TAGS 65535
#define TEXT_BYTES 64

struct tag {
    char text[TEXT_BYTES];
};

static struct intern tags = INTERN(struct tag, TAGS);

tarn_status tarn_tag_intern(const char *text, tarn_tag *tag)
{
    if (!text || !tag)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%s is NULL", text ? "tag" : "text");
    tarn_status status = process_check();
    if (status)
        return status;
    struct tag cut = {""};
    memcpy(cut.text, text, utf8_beginning(text, sizeof cut.text - 1));
    uint32_t number = intern(&tags, &cut);
    if (!number && atomic_load(&tags.used) == TAGS)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "tag \"%s\": all %d tags are in use", cut.text,
                      TAGS);
    if (!number)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for tags");
    *tag = (tarn_tag)number;
    return TARN_OK;
}

const char *tarn_tag_text(tarn_tag tag)
{
    const struct tag *found = intern_value(&tags, tag);
    return found ? found->text : "";
}
