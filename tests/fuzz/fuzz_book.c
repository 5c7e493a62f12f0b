/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* libFuzzer's way into what `tarn run` and `tarn top` read while its writer is at it: clang
 * -fsanitize=fuzzer,address,undefined. Seeds: corpus/book. The input is a list of stores: a byte
 * says into which file (a book, its log, its stacks, a live page, a group), three at which place,
 * one how many bytes follow; 255 of them cut the file there instead. All are read twice: with the
 * stores made, and while a thread makes them and takes them back. Whatever is read is shown, and
 * nothing that is shown moves a cursor.
 *
 * Reader: tools/tarn/launch/books.c copy bound books_read books_account books_holder
 * books_device_sums books_libraries Reader: tools/tarn/launch/run_summary.c row_of row_beside
 * rows_of rows_beside print_rows print_group print_notes Reader: tools/tarn/launch/run_snapshot.c
 * record_at write_frame key_stack key_frames write_entry write_trace write_segment
 */
#include "launch/residue.h"
#include "launch/run_live.h"
#include "launch/run_output.h"
#include "top/fleet.h"
#include "top/top.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BOOK, LOG, STACKS, PAGE, GROUP, FILES };
enum { RECORDS = 12, WORDS = 16, CUT = 255 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file as it is when nobody harms it. */
static struct target {
    char path[160];
    int file;
    size_t size;
    char *sound;
} targets[FILES];

static char directory[] = "/tmp/tarn-fuzz-book-XXXXXX";
static struct group_file group;

static void demand(bool condition)
{
    if (!condition)
        abort();
}

static void restore(const struct target *target)
{
    demand(pwrite(target->file, target->sound, target->size, 0) == (ssize_t)target->size);
    demand(ftruncate(target->file, (off_t)target->size) == 0);
}

/* Opens a file of the folder, or the one of the group, and takes `sound` over. */
static void target_make(int which, const char *path, const void *sound, size_t size)
{
    struct target *target = &targets[which];
    snprintf(target->path, sizeof target->path, "%s", path);
    target->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    target->size = size;
    target->sound = malloc(size);
    demand(target->file >= 0 && target->sound);
    memcpy(target->sound, sound, size);
    restore(target);
}

static void target_in_folder(int which, const char *name, const void *sound, size_t size)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    target_make(which, path, sound, size);
}

/* Starting ------------------------------------------------------------------------------------- */

static void book_make(void)
{
    static struct book book = {.magic = BOOK_MAGIC,
                               .version = BOOK_VERSION,
                               .driver = "cuda",
                               .group = "fuzz",
                               .command = "program argument",
                               .devices = 2,
                               .watched = 1,
                               .libraries = 3,
                               .sites = 3,
                               .log_count = RECORDS,
                               .stack_words = WORDS,
                               .pool = 1 << 20,
                               .start_ns = UINT64_C(1700000000000000000),
                               .unhooked_name = "cuNewer",
                               .unhooked = 1,
                               .unfollowed = 1,
                               .pool_ended = 1,
                               .pool_why = "cuPool",
                               .limit_unmet = "7"};
    book.process = (uint32_t)getpid();
    for (unsigned i = 0; i < 2; i++) {
        struct book_device *device = &book.device[i];
        *device = (struct book_device){
            .total = 1 << 30, .limit = i ? UINT64_MAX : 1 << 29, .used = 3 << 20};
        device->uuid[0] = (char)('a' + i);
        strcpy(device->name, "a device");
        strcpy(device->address, "0000:01:00.0");
        strcpy(device->refusal, "GPU 0: 1.0 MiB refused");
        device->refused = 1;
        for (unsigned j = 0; j < 3; j++)
            for (unsigned k = 0; k < RUN_KINDS; k++) {
                book.holder[i][j].live = book.holder[i][j].peak = 1 << 20;
                book.account[i][j][k] = (struct book_account){
                    .made = 2, .made_bytes = 2 << 20, .live = 1 << 20, .peak = 1 << 20};
            }
    }
    strcpy(book.library[1].path, "/usr/lib/libfirst.so");
    strcpy(book.library[2].path, "/usr/lib/libsecond.so");
    book.site[1] = (struct book_site){.offset = 16, .library = 1, .symbol = "first"};
    book.site[2] = (struct book_site){.offset = 32, .library = 2};
    book.desk[0] = (struct book_desk){
        .account = book_account_number(0, 1, RUN_PLAIN) + 1, .made = 1, .live = 5};
    target_in_folder(BOOK, "1-0.book", &book, sizeof book);
}

static void log_make(void)
{
    struct book_record records[RECORDS] = {{0}};
    const uint32_t stacks[WORDS] = {0, 2, 1, 2, 1, 2, 3, 1, 2, 0};
    for (unsigned i = 0; i < RECORDS; i++)
        records[i] = (struct book_record){.time_ns = i,
                                          .address = (i / 2 + 1) << 21,
                                          .size = 1 << 20,
                                          .site = (uint16_t)(i % 3),
                                          .device = (uint8_t)(i % 2),
                                          .is_free = i % 4 == 3,
                                          .stack = i % 5 == 4 ? 1 : 0};
    target_in_folder(LOG, "1-0.log", records, sizeof records);
    target_in_folder(STACKS, "1-0.stk", stacks, sizeof stacks);
}

/* Locked as by a process that lives. */
static void page_make(void)
{
    static struct page page = {.head = {.magic = PAGE_MAGIC,
                                        .version = PAGE_VERSION,
                                        .size = sizeof page,
                                        .pid = 1,
                                        .name = "fuzz",
                                        .library = "0.1.0",
                                        .driver = "host"},
                               .sequence = 2};
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct survey *survey = &page.survey;
    survey->device_count = survey->handle_count = survey->library_count = survey->graph_count =
        (struct survey_count){1, 1};
    survey->devices[0] =
        (struct survey_device){.used = 1, .name = "a device", .total = 1 << 30, .free = 1 << 29};
    strcpy(survey->libraries[0].name, "libfirst.so");
    target_in_folder(PAGE, PAGE_PREFIX "1", &page, sizeof page);
    demand(fcntl(targets[PAGE].file, F_OFD_SETLK, &lock) == 0);
}

static void group_make(void)
{
    char name[32], why[256];
    struct group *sound = calloc(1, sizeof *sound);
    snprintf(name, sizeof name, "fuzz-book-%ld", (long)getpid());
    demand(sound && group_open(&group, name, "1073741824", why, sizeof why));
    demand(pread(group.file, sound, sizeof *sound, 0) == (ssize_t)sizeof *sound);
    sound->slots = 2;
    sound->device[0] =
        group_device(((const struct book *)(const void *)targets[BOOK].sound)->device[0].uuid);
    sound->slot[0].process = 1;
    sound->slot[0].device[0].used = 1 << 20;
    target_make(GROUP, group.path, sound, sizeof *sound);
    demand(group_lock(targets[GROUP].file, 0, F_WRLCK)); /* its process lives */
    free(sound);
}

static void clean_up(void)
{
    static const char *const others[] = {"out.pickle", "metrics"};
    char path[160];
    for (int i = 0; i < FILES; i++)
        (void)unlink(targets[i].path);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, others[i]);
        (void)unlink(path);
    }
    (void)rmdir(directory);
}

static void start(void)
{
    demand(mkdtemp(directory) && atexit(clean_up) == 0);
    demand(setenv("TARN_LIVE", "0", 1) == 0);
    book_make();
    log_make();
    page_make();
    group_make();
    demand((stderr = fopen("/dev/null", "w")) !=
           NULL); /* where it is said what was written; a sanitizer's reports go elsewhere */
}

/* Writing -------------------------------------------------------------------------------------- */

static struct {
    const uint8_t *data;
    size_t size;
    atomic_bool over;
} stores;

static void store_all(void)
{
    const uint8_t *at = stores.data, *end = at + stores.size;
    while (end - at >= 5) {
        const struct target *target = &targets[at[0] % FILES];
        size_t place = ((size_t)at[1] | (size_t)at[2] << 8 | (size_t)at[3] << 16) % target->size,
               length = at[4];
        at += 5;
        if (length == CUT) {
            demand(ftruncate(target->file, (off_t)place) == 0);
            continue;
        }
        length = length < (size_t)(end - at) ? length : (size_t)(end - at);
        length = length < target->size - place ? length : target->size - place;
        demand(pwrite(target->file, at, length, (off_t)place) == (ssize_t)length);
        at += length;
    }
}

static void restore_all(void)
{
    for (int i = 0; i < FILES; i++)
        restore(&targets[i]);
}

static void *write_on(void *unused)
{
    while (!atomic_load(&stores.over)) {
        store_all();
        restore_all();
    }
    return unused;
}

/* Reading -------------------------------------------------------------------------------------- */

static void moves_no_cursor(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        demand(((unsigned char)text[i] >= 0x20 && text[i] != 0x7f) || text[i] == '\n');
}

static void read_books(void)
{
    static struct books books;
    char path[160], *text = NULL;
    size_t length = 0;
    books_look(&books, directory);
    for (size_t i = 0; i < books.count; i++)
        books_read(&books.list[i]);
    residue_sample(&books, false);
    snprintf(path, sizeof path, "%s/metrics", directory);
    demand(setenv("TARN_METRICS", path, 1) == 0 && run_live_begin());
    run_live_show(&books);
    run_live_end(&books);
    FILE *out = open_memstream(&text, &length);
    demand(out != NULL);
    run_summary_print(&books, &group, out);
    fclose(out);
    moves_no_cursor(text, length);
    free(text);
    snprintf(path, sizeof path, "%s/out.pickle", directory);
    if (books.count)
        (void)run_snapshots_write(&books, path);
    books_close(&books);
}

static void read_pages(void)
{
    struct top_list list;
    struct fleet fleet = {0};
    struct top_frame frame = {0};
    struct top_look look = {.device = -1};
    if (top_list_make(directory, 0, &list) && fleet_make(&list, NULL, FLEET_BY_RESERVED, &fleet))
        fleet_frame(&frame, &fleet, &look);
    moves_no_cursor(frame.text, frame.length);
    top_frame_finish(&frame);
    fleet_finish(&fleet);
    top_list_finish(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pthread_t writer;
    if (!targets[BOOK].file)
        start();
    stores.data = data;
    stores.size = size;
    atomic_store(&stores.over, false);
    store_all();
    read_books();
    demand(pthread_create(&writer, NULL, write_on, NULL) == 0);
    read_books();
    read_pages();
    atomic_store(&stores.over, true);
    pthread_join(writer, NULL);
    restore_all();
    return 0;
}
