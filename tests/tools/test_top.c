/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn top` before pages that lie: cut short, of another version, with counts beyond their room,
 * texts without an end or with escapes; and the text that it makes, whose lines fit into any
 * width. */
#include "support/host.h"
#include "top/top.h"
#include "top/top_text.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[64], path[128];
static struct page page;
static struct top_reading reading, earlier;

/* Writes the page, or the first bytes of it, locked as by a process that lives; gives the file that
 * has the lock. */
static int show(size_t size, bool lock)
{
    int file = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(file >= 0 && write(file, &page, size) == (ssize_t)size);
    if (lock)
        CHECK(fcntl(file, F_OFD_SETLK, &range) == 0);
    return file;
}

static enum top_result read_page(struct top_why *why)
{
    int file = -1;
    *why = (struct top_why){""};
    enum top_result result = top_open(path, &file, why);
    if (result != TOP_OK)
        return result;
    result = top_read(file, &reading, why);
    close(file);
    return result;
}

static void gives(enum top_result wanted, size_t size, bool lock, const char *text)
{
    struct top_why why;
    int file = show(size, lock);
    CHECK(read_page(&why) == wanted);
    if (text && !strstr(why.text, text))
        fprintf(stderr, "\"%s\" has no \"%s\"\n", why.text, text);
    CHECK(!text || strstr(why.text, text));
    close(file);
}

/* A page as a process would write it. */
static void sound(void)
{
    memset(&page, 0, sizeof page);
    memcpy(page.head.magic, PAGE_MAGIC, sizeof page.head.magic);
    page.head.version = PAGE_VERSION;
    page.head.size = sizeof page;
    page.head.pid = 4711;
    page.head.interval_ns = 250000000;
    strcpy(page.head.name, "trainer");
    strcpy(page.head.library, "0.1.0");
    strcpy(page.head.driver, "host");
    atomic_store(&page.sequence, 2);
    struct survey *survey = &page.survey;
    survey->taken_ns = 1000000000;
    survey->number = 1;
    survey->device_count = survey->pool_count = survey->stream_count = survey->handle_count =
        survey->library_count = survey->graph_count = (struct survey_count){1, 1};
    survey->devices[0] =
        (struct survey_device){.used = 1, .name = "a device", .total = 1 << 30, .free = 1 << 29};
    survey->devices[0].limit = SURVEY_UNKNOWN;
    survey->devices[0].stats.reserved_bytes[TARN_STAT_ALL].current = 1 << 28;
    survey->pools[0] = (struct survey_pool){.reserved = 1 << 28, .limit = SURVEY_UNKNOWN};
    survey->streams[0] = (struct survey_stream){.slot = 5, .mapped = 1 << 28};
    survey->handles[0] = (struct survey_handles){.name = "cublas", .in_use = 3};
}

static void a_sound_page_is_read(void **state)
{
    (void)state;
    sound();
    gives(TOP_OK, sizeof page, true, NULL);
    CHECK(memcmp(&reading.survey, &page.survey, sizeof reading.survey) == 0);
    CHECK(reading.sequence == 2 && reading.head.pid == 4711);
}

static void invalid_pages_are_refused(void **state)
{
    (void)state;
    sound();
    gives(TOP_ENDED, sizeof page, false, NULL); /* nobody has the lock */
    gives(TOP_NONE, 0, true, NULL);
    gives(TOP_NONE, sizeof page.head - 1, true, NULL);
    gives(TOP_NONE, sizeof page - 1, true, NULL); /* cut short */
    page.head.magic[0] = 'T';
    gives(TOP_BAD, sizeof page, true, "not a page of tarn");
    sound();
    page.head.version++;
    gives(TOP_BAD, sizeof page, true, "layout 5");
    sound();
    page.head.size--;
    gives(TOP_BAD, sizeof page, true, "tarn 0.1.0");
    sound();
    memset(page.head.magic, 0, sizeof page.head.magic);
    gives(TOP_NONE, sizeof page, true, NULL); /* it is being made */
    sound();
    atomic_store(&page.sequence, 0);
    gives(TOP_NONE, sizeof page, true, NULL);
    atomic_store(&page.sequence, 3); /* written for ever */
    gives(TOP_NONE, sizeof page, true, NULL);
}

static int64_t ms_since(struct timespec from)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000;
}

/* A page beside the one at `path`, which lives. */
static int show_other(int number, uint64_t sequence)
{
    char other[160];
    snprintf(other, sizeof other, "%s/" PAGE_PREFIX "%d", directory, number);
    int file = open(other, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    atomic_store(&page.sequence, sequence);
    CHECK(file >= 0 && pwrite(file, &page, offsetof(struct page, survey), 0) > 0);
    CHECK(ftruncate(file, (off_t)sizeof page) == 0 && fcntl(file, F_OFD_SETLK, &range) == 0);
    return file;
}

/* Any number of pages that cannot be read, or are larger than what is in them, cost a list a moment
 * and memory of some of them. */
static void a_user_cannot_starve_a_list(void **state)
{
    enum { MANY = TOP_PAGES_OF_USER + 60 };
    static int files[MANY];
    struct timespec from;
    struct top_list list;
    size_t read = 0;
    (void)state;
    sound();
    (void)unlink(path);
    for (int odd = 1; odd >= 0; odd--) {
        for (int i = 0; i < MANY; i++)
            files[i] = show_other(10000 + i, odd ? 3 : 2);
        clock_gettime(CLOCK_MONOTONIC, &from);
        CHECK(top_list_make(directory, 0, &list));
        int64_t took = ms_since(from);
        CHECK(took < 5000); /* each that is being written was waited for 200 */
        read = 0;
        for (size_t i = 0; i < list.count; i++)
            read += list.entries[i].reading != NULL;
        CHECK(list.count + list.left_out == MANY && list.count <= TOP_PAGES_OF_USER);
        CHECK(list.count == TOP_PAGES_OF_USER || took >= TOP_LIST_MS); /* its time was over */
        CHECK(read == (odd ? 0 : list.count));
        top_list_finish(&list);
        for (int i = 0; i < MANY; i++)
            close(files[i]);
    }
    CHECK(top_list_make(directory, 0, &list) && list.count == 0); /* what the dead have left goes */
    top_list_finish(&list);
    CHECK(show_other(1, 2) >= 0);
    CHECK(top_list_make(directory, 0, &list) && list.count == 1 && list.left_out == 0);
    top_list_finish(&list);
}

/* Nor can many users together: a list is over after its time, and counts what it has left out. */
static void many_users_cannot_starve_a_list(void **state)
{
    enum { USERS = 60, FIRST = 30000 };
    int files[USERS];
    struct top_list list;
    (void)state;
    if (geteuid() != 0)
        skip();
    sound();
    (void)unlink(path);
    for (int i = 0; i < USERS; i++) {
        files[i] = show_other(20000 + i, 3);
        CHECK(fchown(files[i], (uid_t)(FIRST + i), (gid_t)-1) == 0);
    }
    CHECK(top_list_make(directory, 0, &list));
    /* Each is waited for, since it is being written */
    CHECK(list.left_out > 0 && list.count + list.left_out >= USERS);
    top_list_finish(&list);
    for (int i = 0; i < USERS; i++) {
        char other[160];
        snprintf(other, sizeof other, "%s/" PAGE_PREFIX "%d", directory, 20000 + i);
        close(files[i]);
        CHECK(unlink(other) == 0);
    }
}

/* A file that is called like a page stays, unless it is one. */
static void only_pages_are_removed(void **state)
{
    static const char *const texts[] = {"my notes", "", "tarnliv", "tarnlive and its rest"};
    struct top_list list;
    char other[160];
    (void)state;
    for (int i = 0; i < 5; i++) {
        snprintf(other, sizeof other, "%s/" PAGE_PREFIX "backup%d", directory, i);
        int file = open(other, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, i == 4 ? 0400 : 0600);
        CHECK(file >= 0 && (i == 4 || write(file, texts[i], strlen(texts[i])) >= 0));
        close(file);
    }
    CHECK(top_list_make(directory, 0, &list));
    top_list_finish(&list);
    page_sweep(directory);
    for (int i = 0; i < 5; i++) {
        snprintf(other, sizeof other, "%s/" PAGE_PREFIX "backup%d", directory, i);
        CHECK((access(other, F_OK) == 0) == (i < 3)); /* the last is of one that was killed at
                                                         once */
        (void)unlink(other);
    }
}

static void counts_beyond_their_room_are_refused(void **state)
{
    static const size_t counts[] = {
        offsetof(struct survey, device_count),  offsetof(struct survey, pool_count),
        offsetof(struct survey, stream_count),  offsetof(struct survey, handle_count),
        offsetof(struct survey, library_count), offsetof(struct survey, graph_count)};
    static const uint32_t room[] = {SURVEY_DEVICES, SURVEY_POOLS,     SURVEY_STREAMS,
                                    SURVEY_HANDLES, SURVEY_LIBRARIES, SURVEY_GRAPHS};
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        struct survey_count *count =
            (struct survey_count *)(void *)((char *)&page.survey + counts[i]);
        sound();
        *count = (struct survey_count){UINT32_MAX, room[i] + 1};
        gives(TOP_BAD, sizeof page, true, "no sense");
        *count = (struct survey_count){UINT32_MAX, UINT32_MAX};
        gives(TOP_BAD, sizeof page, true, "no sense");
        *count = (struct survey_count){room[i] - 1, room[i]};
        gives(TOP_BAD, sizeof page, true, "no sense");
        *count = (struct survey_count){UINT32_MAX, room[i]};
        gives(TOP_OK, sizeof page, true, NULL);
    }
}

static void texts_have_an_end_and_move_no_cursor(void **state)
{
    (void)state;
    sound();
    memset(page.head.name, 'n', sizeof page.head.name);
    memset(page.head.library, '\033', sizeof page.head.library);
    memset(page.survey.devices[0].name, 0xff, sizeof page.survey.devices[0].name);
    memcpy(page.survey.handles[0].name, "\033[2J\n", 6);
    gives(TOP_OK, sizeof page, true, NULL);
    CHECK(strlen(reading.head.name) == sizeof reading.head.name - 1);
    CHECK(strspn(reading.head.library, "?") == sizeof reading.head.library - 1);
    CHECK(strspn(reading.survey.devices[0].name, "?") == sizeof reading.survey.devices[0].name - 1);
    CHECK(strcmp(reading.survey.handles[0].name, "?[2J?") == 0);
}

static void read_as_nobody(void)
{
    struct top_why why;
    CHECK(setegid(65534) == 0 && seteuid(65534) == 0);
    CHECK(read_page(&why) == TOP_FOREIGN);
}

static void other_files_are_no_pages(void **state)
{
    (void)state;
    struct top_why why;
    sound();
    int file = show(sizeof page, true);
    if (geteuid() == 0) {
        CHECK(chmod(directory, 0755) == 0);
        in_child(read_as_nobody); /* who may not open it */
        CHECK(chmod(path, 0644) == 0);
        in_child(read_as_nobody); /* who may, and must not believe it */
    }
    char target[160];
    snprintf(target, sizeof target, "%s.target", path);
    CHECK(rename(path, target) == 0 && symlink(target, path) == 0);
    CHECK(read_page(&why) == TOP_BAD);
    CHECK(unlink(path) == 0 && unlink(target) == 0 && mkdir(path, 0700) == 0);
    CHECK(read_page(&why) == TOP_BAD);
    CHECK(rmdir(path) == 0 && mkfifo(path, 0600) == 0);
    CHECK(read_page(&why) == TOP_BAD); /* and does not hang */
    CHECK(unlink(path) == 0);
    CHECK(read_page(&why) == TOP_NONE);
    close(file);
}

/* Showing -------------------------------------------------------------------------------------- */

static void rates_are_changes_a_second(void **state)
{
    (void)state;
    sound();
    memset(&earlier, 0, sizeof earlier);
    earlier.survey = reading.survey = page.survey;
    reading.survey.taken_ns += 2000000000;
    tarn_stats *stats = &reading.survey.devices[0].stats;
    stats->allocation[TARN_STAT_ALL].allocated += 100;
    stats->allocated_bytes[TARN_STAT_ALL].allocated += 5000;
    stats->num_device_alloc += 4;
    stats->num_device_free += 2;
    struct top_rates rates = top_rates_of(&earlier, &reading, &reading.survey.devices[0]);
    CHECK(rates.known && rates.allocations == 50 && rates.bytes == 2500 && rates.driver_calls == 3);
    stats->allocation[TARN_STAT_ALL].allocated = -7; /* the sums were reset */
    CHECK(top_rates_of(&earlier, &reading, &reading.survey.devices[0]).allocations == 0);
    CHECK(!top_rates_of(NULL, &reading, &reading.survey.devices[0]).known);
    CHECK(!top_rates_of(&reading, &reading, &reading.survey.devices[0]).known);
    struct survey_device another = reading.survey.devices[0];
    another.number = 7;
    CHECK(!top_rates_of(&earlier, &reading, &another).known);
}

static void fragmentation_is_what_the_longest_piece_is_not(void **state)
{
    (void)state;
    struct survey_device device = {.spans = 400, .largest_span = 100};
    CHECK(top_fragmentation(&device) == 0.75);
    device.largest_span = 500; /* of another moment */
    CHECK(top_fragmentation(&device) == 0);
    device.spans = 0;
    CHECK(top_fragmentation(&device) == 0);
}

/* The columns of the longest line of ASCII, escapes left out. */
static size_t widest(const char *text)
{
    size_t width = 0, most = 0;
    for (; *text; text++) {
        if (*text == '\033')
            text += strcspn(text, "m");
        else if (*text == '\n')
            width = 0;
        else if (++width > most)
            most = width;
    }
    return most;
}

static void lines_fit_into_any_width_and_tables_into_any_height(void **state)
{
    (void)state;
    struct top_frame frame = {0};
    sound();
    struct survey *survey = &page.survey;
    survey->has_pinned = 1;
    survey->stream_count = (struct survey_count){2000, SURVEY_STREAMS};
    for (int i = 0; i < SURVEY_STREAMS; i++)
        survey->streams[i] =
            (struct survey_stream){.mapped = (uint64_t)i << 20, .slot = (uint32_t)i};
    gives(TOP_OK, sizeof page, true, NULL);
    earlier = reading;
    earlier.survey.taken_ns--;
    for (int width = 1; width < 150; width++) {
        struct top_look look = {.device = -1, .width = width, .rows = 5, .colour = width % 2};
        top_frame_make(&frame, &earlier, &reading, &look);
        CHECK(!frame.failed && widest(frame.text) <= (size_t)width);
    }
    /* The largest */
    CHECK(strstr(frame.text, "1023") && strstr(frame.text, "1019") && !strstr(frame.text, "1018"));
    CHECK(strstr(frame.text, "... and 1995 more"));
    struct top_look look = {.device = 3};
    top_frame_make(&frame, &earlier, &reading, &look);
    CHECK(!strstr(frame.text, "Device 0") && !strstr(frame.text, "STREAM"));
    top_frame_finish(&frame);
}

/* A line that has no room ends in a mark, and a column that has none is named below its table. The
 * lines of a width that has room say nothing of it. */
static void what_is_cut_is_marked(void **state)
{
    (void)state;
    struct top_frame whole = {0}, frame = {0};
    sound();
    gives(TOP_OK, sizeof page, true, NULL);
    struct top_look wide = {.device = -1, .width = 1000}, look = {.device = -1, .width = 40};
    top_frame_make(&whole, NULL, &reading, &wide);
    CHECK(strncmp(whole.text, "trainer has 256 MiB of the 1.00 GiB of device 0, 0 B in use; ",
                  61) == 0);
    CHECK(strstr(whole.text, "; never out of memory\ntrainer (process 4711)"));
    CHECK(!whole.failed && !strstr(whole.text, ">\n") && !strstr(whole.text, "no room"));
    top_frame_make(&frame, NULL, &reading, &look);
    size_t cut = 0;
    bool named = false;
    for (const char *line = frame.text; *line; line += strcspn(line, "\n") + 1) {
        size_t length = strcspn(line, "\n");
        bool marked = length == 40 && line[39] == '>';
        cut += marked;
        char text[64] = "\n";
        memcpy(text + 1, line, length - marked);
        text[1 + length - marked] = '\0';
        /* Columns without room; a long list of them goes on in the next line */
        named = strncmp(line, "no room for ", 12) == 0 || (named && strncmp(line, "  ", 2) == 0);
        /* The bar is as wide as there is room */
        bool bar = strncmp(line, " [", 2) == 0;
        const char *shown = line == frame.text ? text + 1 : text;
        CHECK(length == 0 || named || bar || strstr(whole.text, shown));
    }
    CHECK(cut >= 3);
    static const char *const columns[] = {"REQUESTED", "BLOCKS", "STREAM", "NATIVE", "MAPPED",
                                          "FREE",      "LIMIT",  "STATE",  "MADE",   "FAILED"};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        CHECK(strstr(frame.text, columns[i]));
    CHECK(strstr(frame.text, "no room for RESERVED, BLOCKS\n"));
    look.width = 12;
    top_frame_make(&frame, NULL, &reading, &look); /* the first column stays */
    CHECK(!frame.failed && strstr(frame.text, "\nSTREAM\n") && strstr(frame.text, "no room"));
    top_frame_finish(&whole);
    top_frame_finish(&frame);
}

/* The newest reading is on the right, the highest on top, and no more is kept than has room. */
/* A long name gives way before a column of figures does. */
static void names_are_shortened_before_figures_go(void **state)
{
    (void)state;
    static const struct top_column columns[] = {
        {"PROCESS", SCOLS_FL_RIGHT}, {"NAME", 0}, {"RESERVED", SCOLS_FL_RIGHT}};
    char name[121] = "";
    memset(name, 'n', sizeof name - 1);
    struct top_look look = {.width = 40};
    struct top_frame frame = {0};
    struct libscols_table *table = top_table_begin(columns, 3);
    top_table_row(&frame, table, (const char *const[]){"4711", name, "12.0 GiB"}, 3);
    top_table_row(&frame, table, (const char *const[]){"4712", "short", "13.0 GiB"}, 3);
    top_table_end(&frame, &look, table, 0);
    CHECK(!frame.failed && strstr(frame.text, "RESERVED") && strstr(frame.text, "12.0 GiB"));
    CHECK(strstr(frame.text, "nnn>") && strstr(frame.text, "4712  short "));
    CHECK(!strstr(frame.text, "no room"));
    for (const char *line = frame.text; *line; line += strcspn(line, "\n") + 1)
        CHECK(strcspn(line, "\n") <= 40);
    top_frame_finish(&frame);
}

static void a_graph_has_a_column_a_reading(void **state)
{
    (void)state;
    static struct top_history history;
    struct top_frame frame = {0};
    struct top_look look = {.device = -1, .width = 100, .history = &history};
    sound();
    gives(TOP_OK, sizeof page, true, NULL);
    tarn_stats *stats = &reading.survey.devices[0].stats;
    for (int i = 1; i <= 300; i++) {
        stats->reserved_bytes[TARN_STAT_ALL].current = INT64_C(1) << 30;
        stats->allocated_bytes[TARN_STAT_ALL].current = (i > 290 ? INT64_C(1) << 30 : 0);
        top_history_add(&history, &reading.survey);
        top_frame_make(&frame, NULL, &reading, &look);
        CHECK(!frame.failed && (i > 1) == (strstr(frame.text, "the newest on the right") != NULL));
    }
    CHECK(history.devices[0].count == TOP_PAST);
    char row[100] = "";
    memset(row, '.', 78);
    memset(row + 78, '#', 10);
    const char *top = strstr(frame.text, "  1.00 GiB |");
    CHECK(top && strncmp(top + 12, row, 88) == 0 && top[100] == '\n');
    CHECK(strstr(frame.text, "88 readings, the newest on the right"));
    look.history = NULL;
    top_frame_make(&frame, NULL, &reading, &look);
    CHECK(!strstr(frame.text, "readings"));
    top_frame_finish(&frame);
}

/* Numbers are numbers, whatever they are. */
static void rubbish_is_shown_as_rubbish(void **state)
{
    (void)state;
    struct top_frame frame = {0};
    uint64_t random = 1;
    FILE *sink = fopen("/dev/null", "we");
    CHECK(sink);
    for (int round = 0; round < 30; round++) {
        uint64_t *words = (uint64_t *)(void *)&reading.survey;
        sound();
        gives(TOP_OK, sizeof page, true, NULL);
        struct survey before = reading.survey;
        for (size_t i = 0; i < sizeof reading.survey / sizeof *words; i++)
            words[i] = round % 3 ? random_next(&random) : round % 2 ? UINT64_MAX : INT64_MAX;
        reading.survey.device_count = reading.survey.pool_count = reading.survey.stream_count =
            reading.survey.handle_count = reading.survey.library_count =
                reading.survey.graph_count = before.device_count;
        reading.survey.devices[0].number = round % 2 ? 0 : -1;
        memcpy(reading.survey.devices[0].name, before.devices[0].name,
               sizeof before.devices[0].name);
        memcpy(reading.survey.handles[0].name, before.handles[0].name,
               sizeof before.handles[0].name);
        memcpy(reading.survey.libraries[0].name, before.libraries[0].name,
               sizeof before.libraries[0].name);
        earlier.survey = before;
        struct top_look look = {.device = -1, .width = 100, .utf8 = true};
        top_frame_make(&frame, &earlier, &reading, &look);
        CHECK(!frame.failed);
        CHECK(top_json_write(sink, &earlier, &reading, -1));
    }
    fclose(sink);
    top_frame_finish(&frame);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_page_is_read),
        cmocka_unit_test(invalid_pages_are_refused),
        cmocka_unit_test(a_user_cannot_starve_a_list),
        cmocka_unit_test(many_users_cannot_starve_a_list),
        cmocka_unit_test(only_pages_are_removed),
        cmocka_unit_test(counts_beyond_their_room_are_refused),
        cmocka_unit_test(texts_have_an_end_and_move_no_cursor),
        cmocka_unit_test(other_files_are_no_pages),
        cmocka_unit_test(rates_are_changes_a_second),
        cmocka_unit_test(fragmentation_is_what_the_longest_piece_is_not),
        cmocka_unit_test(lines_fit_into_any_width_and_tables_into_any_height),
        cmocka_unit_test(what_is_cut_is_marked),
        cmocka_unit_test(names_are_shortened_before_figures_go),
        cmocka_unit_test(a_graph_has_a_column_a_reading),
        cmocka_unit_test(rubbish_is_shown_as_rubbish),
    };
    snprintf(directory, sizeof directory, "/tmp/tarn-test-top.XXXXXX");
    CHECK(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/" PAGE_PREFIX "4711", directory);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    (void)rmdir(directory);
    return failed;
}
