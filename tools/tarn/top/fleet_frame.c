/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The machine as lines of text: a table of processes, a line for each device that one uses, and a
 * table of devices. */
#include "top/fleet.h"
#include "top/top_text.h"
#include "units.h"

#include <inttypes.h>
#include <string.h>

enum { NARROW = 100, NARROW_SAMPLES = 8 };

/* Reserved memory over the last looks, a letter each, of the most that it was. A narrow screen has
 * fewer of them. */
static void history_text(const struct fleet_share *share, const struct top_look *look, char *text,
                         size_t size)
{
    static const char *const fancy[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
    uint64_t most = 1;
    size_t at = 0;
    for (int i = 0; i < share->samples; i++)
        most = share->history[i] > most ? share->history[i] : most;
    text[0] = '\0';
    bool narrow = look->width && look->width < NARROW && share->samples > NARROW_SAMPLES;
    for (int i = narrow ? share->samples - NARROW_SAMPLES : 0; i < share->samples; i++) {
        int level = (int)((double)share->history[i] / (double)most * 7 + 0.5);
        at +=
            (size_t)snprintf(text + at, size - at, "%s", look->utf8 ? fancy[level] : plain[level]);
    }
}

static void say_share(struct top_frame *frame, struct libscols_table *table,
                      const struct fleet *fleet, const struct fleet_share *share,
                      const struct top_look *look, bool ranks)
{
    const struct top_entry *entry = &fleet->list->entries[share->entry];
    char rank[16] = "", part[16] = "", history[64] = "", rate[48] = "";
    struct units_text reserved = units_bytes(share->reserved),
                      allocated = units_bytes(share->allocated), peak = units_bytes(share->peak),
                      time = top_since(entry->head.started);
    if (entry->head.rank >= 0)
        snprintf(rank, sizeof rank, "%d", entry->head.rank);
    if (share->of)
        snprintf(part, sizeof part, "%.1f %%", 100 * fleet_part(fleet, share));
    if (share->rate >= 0 && share->rate < 1e18)
        snprintf(rate, sizeof rate, "%s", units_count((uint64_t)(share->rate + 0.5)).text);
    history_text(share, look, history, sizeof history);
    const char *cells[] = {rank,
                           entry->number,
                           entry->head.name,
                           share->of ? fleet_device_name(&fleet->devices[share->device]) : "none",
                           part,
                           share->of ? reserved.text : "",
                           share->of ? allocated.text : "",
                           share->of ? peak.text : "",
                           rate,
                           history,
                           time.text};
    top_table_row(frame, table, cells + !ranks, sizeof cells / sizeof *cells - !ranks);
}

static void say_shares(struct top_frame *frame, const struct fleet *fleet,
                       const struct top_look *look)
{
    /* The first column is left out where no process has a rank */
    static const struct top_column columns[] = {{"RANK", SCOLS_FL_RIGHT},
                                                {"PROCESS", SCOLS_FL_RIGHT},
                                                {"NAME", 0},
                                                {"DEVICE", 0},
                                                {"SHARE", SCOLS_FL_RIGHT},
                                                {"RESERVED", SCOLS_FL_RIGHT},
                                                {"IN USE", SCOLS_FL_RIGHT},
                                                {"PEAK", SCOLS_FL_RIGHT},
                                                {"BLOCKS/S", SCOLS_FL_RIGHT},
                                                {"HISTORY", 0},
                                                {"FOR", SCOLS_FL_RIGHT}};
    size_t shown = look->rows && fleet->share_count > look->rows ? look->rows : fleet->share_count;
    bool ranks = false;
    for (size_t i = 0; i < fleet->list->count; i++)
        ranks |= fleet->list->entries[i].head.rank >= 0 && fleet->list->entries[i].reading;
    struct libscols_table *table =
        top_table_begin(columns + !ranks, sizeof columns / sizeof *columns - !ranks);
    for (size_t i = 0; i < shown && !frame->failed; i++)
        say_share(frame, table, fleet, &fleet->shares[i], look, ranks);
    top_table_end(frame, look, table, fleet->share_count - shown);
}

static struct units_text known_bytes(uint64_t bytes)
{
    static const struct units_text unknown = {"?"};
    return bytes == SURVEY_UNKNOWN ? unknown : units_bytes(bytes);
}

static void say_device(struct top_frame *frame, struct libscols_table *table,
                       const struct fleet_device *device)
{
    bool known = device->used != SURVEY_UNKNOWN;
    uint64_t theirs =
        device->rest == SURVEY_UNKNOWN ? device->reserved : device->reserved + device->rest;
    uint64_t others = !known ? SURVEY_UNKNOWN : device->used > theirs ? device->used - theirs : 0;
    uint64_t available = !known                         ? SURVEY_UNKNOWN
                         : device->total > device->used ? device->total - device->used
                                                        : 0;
    struct units_text total = units_bytes(device->total), reserved = units_bytes(device->reserved),
                      rest = known_bytes(device->rest), foreign = known_bytes(others),
                      free_text = known_bytes(available);
    const char *cells[] = {fleet_device_name(device),
                           device->name,
                           device->uuid,
                           total.text,
                           reserved.text,
                           rest.text,
                           foreign.text,
                           free_text.text,
                           device->monitored ? "NVML" : "the driver"};
    top_table_row(frame, table, cells, sizeof cells / sizeof *cells);
}

static void say_devices(struct top_frame *frame, const struct fleet *fleet,
                        const struct top_look *look)
{
    static const struct top_column columns[] = {{"DEVICE", 0},
                                                {"NAME", 0},
                                                {"UUID", 0},
                                                {"MEMORY", SCOLS_FL_RIGHT},
                                                {"IN TARN", SCOLS_FL_RIGHT},
                                                {"BESIDE", SCOLS_FL_RIGHT},
                                                {"OTHERS", SCOLS_FL_RIGHT},
                                                {"FREE", SCOLS_FL_RIGHT},
                                                {"SAYS", 0}};
    struct libscols_table *table = top_table_begin(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < fleet->device_count && !frame->failed; i++)
        say_device(frame, table, &fleet->devices[i]);
    top_table_end(frame, look, table, 0);
}

static void say_kept(struct top_frame *frame, const struct fleet *fleet,
                     const struct top_look *look)
{
    static const struct top_column columns[] = {{"KEPT POOL", 0},
                                                {"DEVICE", 0},
                                                {"RESERVED", SCOLS_FL_RIGHT},
                                                {"SEALED", SCOLS_FL_RIGHT},
                                                {"LINGERING", SCOLS_FL_RIGHT},
                                                {"PROCESS", SCOLS_FL_RIGHT},
                                                {"GROUP", 0}};
    struct libscols_table *table = top_table_begin(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < fleet->kept_count && !frame->failed; i++) {
        const struct fleet_kept *pool = &fleet->kept[i];
        char process[24];
        struct units_text bytes = units_bytes(pool->bytes), blocks = units_count(pool->blocks),
                          lingering = units_bytes(pool->lingering);
        snprintf(process, sizeof process, "%s", pool->ended ? "ended" : "none");
        if (pool->process)
            snprintf(process, sizeof process, "%" PRIi64, pool->process);
        const char *cells[] = {pool->name,     pool->device, bytes.text, blocks.text,
                               lingering.text, process,      pool->group};
        top_table_row(frame, table, cells, sizeof cells / sizeof *cells);
    }
    top_table_end(frame, look, table, 0);
}

/* What all processes have together, and the device with the least part free. A process that was
 * writing its page as long as the list waits for pages is counted apart. */
static void say_verdict(struct top_frame *frame, const struct fleet *fleet,
                        const struct top_look *look)
{
    const struct fleet_device *fullest = NULL;
    uint64_t reserved = 0;
    double most = -1;
    for (size_t i = 0; i < fleet->device_count; i++) {
        const struct fleet_device *device = &fleet->devices[i];
        bool known = device->used != SURVEY_UNKNOWN;
        double part = (double)(known ? device->used : device->reserved) / (double)device->total;
        reserved += device->reserved;
        if (!device->total || part <= most)
            continue;
        fullest = device;
        most = part;
    }
    size_t count = 0, writing = 0;
    for (size_t i = 0; i < fleet->list->count; i++) {
        count += fleet->list->entries[i].reading != NULL;
        writing += !fleet->list->entries[i].reading && !fleet->list->entries[i].foreign;
    }
    char device[256] = "", more[64] = "";
    if (writing)
        snprintf(more, sizeof more, "; %zu more %s writing", writing, writing == 1 ? "is" : "are");
    if (fullest && fleet->device_count == 1)
        snprintf(device, sizeof device, "; it is %.1f %% full", 100 * most);
    else if (fullest)
        snprintf(device, sizeof device, "; the fullest, %s, is %.1f %% full",
                 fleet_device_name(fullest), 100 * most);
    top_say(frame, look, true, "%zu process%s ha%s %s on %zu device%s%s%s", count,
            count == 1 ? "" : "es", count == 1 ? "s" : "ve", units_bytes(reserved).text,
            fleet->device_count, fleet->device_count == 1 ? "" : "s", device, more);
    top_put(frame, "\n", 1);
}

void fleet_frame(struct top_frame *frame, const struct fleet *fleet, const struct top_look *look)
{
    frame->length = 0;
    frame->failed = false;
    say_verdict(frame, fleet, look);
    if (fleet->share_count)
        say_shares(frame, fleet, look);
    if (fleet->device_count)
        say_devices(frame, fleet, look);
    if (fleet->kept_count)
        say_kept(frame, fleet, look);
    while (frame->length > 1 && frame->text[frame->length - 2] == '\n')
        frame->text[--frame->length] = '\0'; /* no empty line at the end */
}
