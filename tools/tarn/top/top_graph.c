/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the graph of `tarn top`: a column a reading, the newest on the right. */
#include "top/top_graph.h"

#include "top/top_text.h"
#include "units.h"

#include <string.h>

#define ROWS 5
#define LEFT 12 /* columns before it: a size, a space, the axis */

void top_history_add(struct top_history *history, const struct survey *survey)
{
    for (uint32_t i = 0; i < survey->device_count.here; i++) {
        const struct survey_device *device = &survey->devices[i];
        struct top_past *past = history->devices, *end = past + history->count;
        while (past < end && past->number != device->number)
            past++;
        if (past == end && history->count == TOP_PAST_DEVICES)
            continue;
        if (past == end) {
            *past = (struct top_past){.number = device->number};
            history->count++;
        }
        if (past->count == TOP_PAST)
            memmove(past->readings, past->readings + 1, --past->count * sizeof *past->readings);
        past->readings[past->count++] = (struct top_past_reading){
            .allocated = (uint64_t)device->stats.allocated_bytes[TARN_STAT_ALL].current,
            .reserved = (uint64_t)device->stats.reserved_bytes[TARN_STAT_ALL].current};
    }
}

static const char *cell(const struct top_look *look, const struct top_past_reading *reading,
                        double low, double step)
{
    static const char *const eighths[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                          "\u2585", "\u2586", "\u2587", "\u2588"};
    double filled = ((double)reading->allocated - low) / step,
           line = ((double)reading->reserved - low) / step;
    int eighth = filled <= 0 ? 0 : filled >= 1 ? 8 : (int)(filled * 8 + 0.5);
    if (!eighth && line > 0 && line <= 1)
        return look->utf8 ? "\u00b7" : ".";
    return look->utf8 ? eighths[eighth] : eighth >= 4 ? "#" : " ";
}

void top_graph_say(struct top_frame *frame, const struct top_look *look, int device)
{
    const struct top_past *past = NULL;
    for (size_t i = 0; look->history && i < look->history->count; i++)
        if (look->history->devices[i].number == device)
            past = &look->history->devices[i];
    if (!past || past->count < 2 || (look->width && look->width < LEFT + 10))
        return;
    size_t room = look->width ? (size_t)(look->width - LEFT) : TOP_PAST;
    size_t first = past->count > room ? past->count - room : 0;
    uint64_t top = 1;
    for (size_t i = first; i < past->count; i++) {
        const struct top_past_reading *reading = &past->readings[i];
        top = reading->reserved > top ? reading->reserved : top;
        top = reading->allocated > top ? reading->allocated : top;
    }
    for (int row = ROWS - 1; row >= 0; row--) {
        char line[4 * TOP_PAST + 64];
        int at = snprintf(line, sizeof line, "%*s %s", LEFT - 2,
                          row == ROWS - 1 ? units_bytes(top).text
                          : row == 0      ? "0 B"
                                          : "",
                          look->utf8 ? "\u2502" : "|");
        for (size_t i = first; i < past->count; i++)
            at += snprintf(
                line + at, sizeof line - (size_t)at, "%s",
                cell(look, &past->readings[i], (double)top * row / ROWS, (double)top / ROWS));
        top_say(frame, look, false, "%s", line);
    }
    top_say(frame, look, false,
            "%*s%s allocated, %s reserved; %zu readings, the newest on the right", LEFT, "",
            look->utf8 ? "\u2587" : "#", look->utf8 ? "\u00b7" : ".", past->count - first);
}
