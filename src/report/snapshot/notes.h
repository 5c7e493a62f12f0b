/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a record of the trace says in words: where a block belongs, and the place that it was in. */
#ifndef TARN_REPORT_SNAPSHOT_NOTES_H
#define TARN_REPORT_SNAPSHOT_NOTES_H

#include "memory/watch/picture.h"

#define NOTE_BYTES 1024

/* "step 3/layer 7/attention": the regions from the outermost to the innermost, and the tag; "" for
 * none. Cut in front where it is too long. */
void note_text(uint32_t region, uint16_t tag, char text[NOTE_BYTES]);

/* A record's place; all 0 where it has none. */
const struct trace_place *place_of(uint32_t number);

/* The name of a region; "" for none. */
const char *region_name(uint64_t number);

/* A text that trace_text() gave a number; "" for none. */
const char *text_of(uint64_t number);

#endif
