/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* libFuzzer's way into what `tarn top` reads of other processes: clang
 * -fsanitize=fuzzer,address,undefined. Seeds: corpus/page. A page is made that is right, and shown
 * twice with what the input says put into it: three bytes of place, one of length, and as many
 * bytes; before these, a byte of flags and two of the length that the file is cut to. Whatever is
 * read must be shown, as a table and as JSON.
 *
 * Reader: tools/tarn/top/top_page.c read_head top_open count_fits is_sound read_sequence copy
 * read_until top_read name_entry read_entry look_at Reader: tools/tarn/top/top_frame.c
 * Reader: tools/tarn/top/top_json.c
 * Reader: tools/tarn/top/fleet.c fleet_make
 */
#include "base/status.h"
#include "device/device.h"
#include "metrics/machine.h"
#include "top/fleet.h"
#include "top/top.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tarn/host.h>
#include <tarn/tarn.h>
#include <unistd.h>

enum {
    IS_CUT = 1,
    HAS_OTHER_MAGIC = 2,
    IS_WRITTEN_TO = 4,
    IS_SHOWN = 8,
    HAS_COLOUR = 16,
    HAS_ROWS = 32,
    ONE_DEVICE = 64
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char directory[] = "/tmp/tarn-fuzz-page-XXXXXX";
static struct page sound; /* with a survey of this process */

static void demand(bool condition)
{
    if (!condition)
        abort();
}

static void remove_directory(void)
{
    (void)rmdir(directory);
}

static int make_handle(void **handle)
{
    *handle = directory;
    return 0;
}

static int end_handle(void *handle)
{
    return handle != directory;
}

static void use_handle(void)
{
    static const tarn_library_row row = {
        .size = sizeof row, .name = "fuzzed", .create = make_handle, .destroy = end_handle};
    tarn_library library = 0;
    void *handle = NULL;
    demand(tarn_library_register(&row, &library) == TARN_OK &&
           tarn_handle_get(library, TARN_STREAM_CURRENT, &handle) == TARN_OK);
}

static void start(void)
{
    const tarn_host_configuration config = {
        .size = sizeof config, .devices = 2, .memory = (size_t)64 << 20};
    const struct page_head head = {.interval_ns = 250000000,
                                   .started = 1700000000,
                                   .name = "fuzz",
                                   .library = "0.1.0",
                                   .driver = "host"};
    struct page_file file;
    struct surveyor *surveyor = calloc(1, sizeof *surveyor);
    tarn_pool *pool = NULL;
    void *block = NULL;
    demand(surveyor && mkdtemp(directory) && atexit(remove_directory) == 0);
    demand(tarn_host_configuration_set(&config) == TARN_OK &&
           tarn_pool_create(NULL, &pool) == TARN_OK);
    demand(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, 1 << 20, &block) == TARN_OK &&
           tarn_malloc(4096));
    demand(tarn_pinned_alloc(TARN_STREAM_CURRENT, 4096, &block) == TARN_OK);
    use_handle();
    survey_take(surveyor);
    demand(page_create(directory, &head, &file) == TARN_OK);
    page_write(&file, &surveyor->survey);
    memcpy(&sound, file.page, sizeof sound);
    page_remove(&file);
    free(surveyor);
}

/* A copy of the page with bytes of the input in it. */
static void damage(struct page *page, const uint8_t *data, size_t size)
{
    uint8_t *bytes = (uint8_t *)page;
    while (size > 4) {
        size_t place = (size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16,
               length = data[3];
        data += 4;
        size -= 4;
        length = length < size ? length : size;
        place %= sizeof *page;
        memcpy(bytes + place, data, length < sizeof *page - place ? length : sizeof *page - place);
        data += length;
        size -= length;
    }
}

static bool lock(int file, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

static void show(const struct top_reading *before, const struct top_reading *now, uint8_t flags)
{
    struct top_look look = {.width = flags & HAS_ROWS ? 80 : 0,
                            .rows = flags & HAS_ROWS ? 3 : 0,
                            .device = flags & ONE_DEVICE ? 1 : -1,
                            .utf8 = flags & HAS_COLOUR,
                            .colour = flags & HAS_COLOUR,
                            .silent = flags & HAS_ROWS ? 5 : 0};
    struct top_frame frame = {0};
    top_frame_make(&frame, before, now, &look);
    for (size_t i = 0; i < frame.length; i++) /* nothing of it moves a cursor, except for colours
                                                 that were asked for */
        demand((unsigned char)frame.text[i] >= 0x20 || frame.text[i] == '\n' ||
               (flags & HAS_COLOUR));
    top_frame_finish(&frame);
    FILE *out = fopen("/dev/null", "w");
    demand(out && top_json_write(out, before, now, look.device));
    fclose(out);
}

/* All pages that there are, as `tarn top` and `tarn metrics` show them: twice, so that there is a
 * history. */
static void show_list(void)
{
    struct top_look look = {.device = -1};
    struct top_list lists[2];
    struct fleet fleets[2] = {{0}};
    struct top_frame frame = {0};
    struct metrics_text text;
    FILE *out = fopen("/dev/null", "w");
    for (int i = 0; i < 2; i++)
        if (top_list_make(directory, 0, &lists[i]) &&
            fleet_make(&lists[i], i ? &fleets[0] : NULL, i ? FLEET_BY_RATE : FLEET_BY_RESERVED,
                       &fleets[i])) {
            fleet_frame(&frame, &fleets[i], &look);
            demand(out && top_json_list(out, &fleets[i]));
        }
    for (size_t i = 0; i < frame.length; i++)
        demand((unsigned char)frame.text[i] >= 0x20 || frame.text[i] == '\n');
    top_frame_finish(&frame);
    for (int i = 0; i < 2; i++) {
        fleet_finish(&fleets[i]);
        top_list_finish(&lists[i]);
    }
    if (metrics_text_make(directory, &text))
        free(text.text);
    fclose(out);
}

static void read_page(const char *path, int writer, uint8_t flags)
{
    static struct top_reading before, now;
    struct top_why why = {""};
    int file = -1;
    enum top_result result = top_open(path, &file, &why);
    demand(result != TOP_BAD || why.text[0]);
    show_list();
    if (result != TOP_OK)
        return;
    if (flags & IS_WRITTEN_TO) /* or it would be waited for */
        demand(lock(writer, F_UNLCK));
    result = top_read(file, &now, &why);
    if (result == TOP_OK) {
        memcpy(&before.head, &sound.head, sizeof before.head);
        before.sequence = atomic_load(&sound.sequence);
        before.survey = sound.survey;
        before.survey.taken_ns -= UINT64_C(1000000000);
        show(&before, &now, flags);
        show(NULL, &now, flags);
        show(&now, &before, flags);
    }
    close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct page page;
    char path[128];
    if (!sound.head.pid)
        start();
    if (size < 3)
        return 0;
    uint8_t flags = data[0];
    size_t length =
        flags & IS_CUT ? ((size_t)data[1] | (size_t)data[2] << 8) * 16 % sizeof page : sizeof page;
    memcpy(&page, &sound, sizeof page);
    damage(&page, data + 3, size - 3);
    if (!(flags & HAS_OTHER_MAGIC))
        memcpy(page.head.magic, PAGE_MAGIC, sizeof page.head.magic);
    uint64_t sequence = atomic_load(&page.sequence);
    if (flags & IS_WRITTEN_TO)
        sequence |= 1;
    else if (sequence < 2 || sequence % 2)
        sequence = 2;
    atomic_store(&page.sequence, sequence);
    snprintf(path, sizeof path, "%s/" PAGE_PREFIX "1", directory);
    int writer = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    demand(writer >= 0 && write(writer, &page, length) == (ssize_t)length);
    if (!(flags & IS_SHOWN))
        demand(lock(writer, F_WRLCK));
    read_page(path, writer, flags);
    (void)unlink(path);
    close(writer);
    return 0;
}
