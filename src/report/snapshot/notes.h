/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Parts of a trace record as text: region and tag, and the place. */
#ifndef TARN_REPORT_SNAPSHOT_NOTES_H
#define TARN_REPORT_SNAPSHOT_NOTES_H

#include "memory/watch/picture.h"

#define NOTE_BYTES 1024

/* "step 3/layer 7/attention": the regions, outermost first, and the tag; "": none. A longer text is
 * cut at its beginning. */
void note_text(uint32_t region, uint16_t tag, char text[NOTE_BYTES]);

/* A record's place; all 0: none. */
const struct trace_place *place_of(uint32_t number);

/* The name of a region; "": none. */
const char *region_name(uint64_t number);

/* The text with a number from trace_text(); "": none. */
const char *text_of(uint64_t number);

#endif
