/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* An owner of kept pools that answers what it should not. The broken owner is a relay between a
 * process and a good owner, which changes one answer on its way. Whatever it does, the process goes
 * on, has no file more than before, and what was sealed is whole in the next process. */
#include "base/pages.h"
#include "keep_message.h"
#include "memory/keep/layout.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/un.h>

#include <cmocka.h>

/* ---- What a broken owner does ---- */

static void hang_up(struct message *message)
{
    message->hangs_up = true;
}

static void never_answer(struct message *message)
{
    message->late_ms = 3 * PATIENCE_MS;
}

static void answer_late(struct message *message)
{
    message->late_ms = PATIENCE_MS / 4;
}

static void be_short(struct message *message)
{
    message->size -= 1;
}

static void be_long(struct message *message)
{
    message->size = BYTES;
}

static void be_empty(struct message *message)
{
    message->size = 0;
}

static void be_zeros(struct message *message)
{
    memset(message->bytes, 0, message->size);
}

static void be_of_another_version(struct message *message)
{
    message->said.version++;
}

static void name_without_end(struct message *message)
{
    memset(message->said.name, 'n', sizeof message->said.name);
}

static void text_without_end(struct message *message)
{
    memset(message->said.text, 't', sizeof message->said.text);
}

static void another_name(struct message *message)
{
    message->said.name[0] ^= 1;
}

static void count_none(struct message *message)
{
    message->said.count = 0;
}

static void count_one_more(struct message *message)
{
    message->said.count++;
}

static void count_too_many(struct message *message)
{
    message->said.count = UINT32_MAX;
}

static void lose_files(struct message *message)
{
    close_files(message);
}

static void lose_a_file(struct message *message)
{
    if (message->count)
        close(message->files[--message->count]);
}

static void add_files(struct message *message)
{
    while (message->count < 40)
        add_file(message);
}

static void replace(struct message *message, unsigned i, int file)
{
    if (i < message->count) {
        close(message->files[i]);
        message->files[i] = file;
    } else {
        close(file);
    }
}

static void give_null(struct message *message)
{
    for (unsigned i = 0; i < message->count; i++)
        replace(message, i, open("/dev/null", O_RDWR | O_CLOEXEC));
}

static void give_sockets(struct message *message)
{
    for (unsigned i = 0; i < message->count; i++)
        replace(message, i, socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}

/* A file that its giver can make shorter under a mapping. */
static void give_unsealed(struct message *message)
{
    for (unsigned i = 0; i < message->count; i++) {
        int file = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        CHECK(ftruncate(file, (off_t)(SEGMENT + sizeof(struct layout))) == 0);
        replace(message, i, file);
    }
}

static void swap_files(struct message *message)
{
    if (message->count < 2)
        return;
    int first = message->files[0];
    message->files[0] = message->files[message->count - 1];
    message->files[message->count - 1] = first;
}

static const struct change {
    const char *name;
    void (*make)(struct message *);
} changes[] = {
    {"hang up", hang_up},
    {"never answer", never_answer},
    {"answer late", answer_late},
    {"be short", be_short},
    {"be long", be_long},
    {"be empty", be_empty},
    {"be zeros", be_zeros},
    {"be noise", be_noise},
    {"be of another version", be_of_another_version},
    {"name without end", name_without_end},
    {"text without end", text_without_end},
    {"another name", another_name},
    {"count none", count_none},
    {"count one more", count_one_more},
    {"count too many", count_too_many},
    {"lose files", lose_files},
    {"lose a file", lose_a_file},
    {"add a file", add_file},
    {"add files", add_files},
    {"give null", give_null},
    {"give sockets", give_sockets},
    {"give unsealed", give_unsealed},
    {"swap files", swap_files},
    {"flip bits", flip_bits},
    {"flip other bits", flip_bits},
    {"flip some bits", flip_bits},
    {"flip few bits", flip_bits},
};
enum { CHANGES = sizeof changes / sizeof *changes };

/* Of the answer with segments. */

static void segment_off_granule(struct message *message)
{
    message->said.segments[1].offset += 4096;
}

static void segment_of_nothing(struct message *message)
{
    message->said.segments[0].size = 0;
}

static void segment_too_large(struct message *message)
{
    message->said.segments[0].size *= 2;
}

static void segment_beyond(struct message *message)
{
    message->said.segments[0].offset = UINT64_MAX - SEGMENT + 1;
}

static void segment_of_all(struct message *message)
{
    message->said.segments[0].size = UINT64_MAX / (2 * MIB) * (2 * MIB);
}

static void segment_twice(struct message *message)
{
    message->said.segments[1] = message->said.segments[0];
}

static const struct change segment_changes[] = {
    {"off granule", segment_off_granule}, {"of nothing", segment_of_nothing},
    {"too large", segment_too_large},     {"beyond", segment_beyond},
    {"of all", segment_of_all},           {"twice", segment_twice},
};
enum { SEGMENT_CHANGES = sizeof segment_changes / sizeof *segment_changes };

/* Of a copy of the layout. */

static void layout_of_zeros(struct layout *layout)
{
    memset(layout, 0, 4096);
}

static void layout_version(struct layout *layout)
{
    layout->version++;
}

static void layout_odd_base(struct layout *layout)
{
    atomic_fetch_add(&layout->base, 12345);
}

static void layout_high_base(struct layout *layout)
{
    atomic_store(&layout->base, UINT64_MAX - 2 * MIB + 1);
}

static void layout_without_size(struct layout *layout)
{
    layout->size = 0;
}

static void layout_small(struct layout *layout)
{
    layout->size = 2 * MIB;
}

static void layout_huge(struct layout *layout)
{
    layout->size = UINT64_MAX / (2 * MIB) * (2 * MIB);
}

static void layout_used_beyond(struct layout *layout)
{
    atomic_store(&layout->used, UINT64_MAX);
}

static void layout_used_all(struct layout *layout)
{
    atomic_store(&layout->used, LAYOUT_BLOCKS);
}

static void layout_used_none(struct layout *layout)
{
    atomic_store(&layout->used, 0);
}

static void layout_overlap(struct layout *layout)
{
    layout->blocks[1].offset = layout->blocks[0].offset;
}

static void layout_outside(struct layout *layout)
{
    layout->blocks[1].offset = UINT64_MAX - 511;
}

static void layout_odd_block(struct layout *layout)
{
    layout->blocks[1].offset++;
}

static void layout_bytes(struct layout *layout)
{
    layout->blocks[1].bytes = UINT64_MAX - 100;
}

static void layout_long_block(struct layout *layout)
{
    layout->blocks[0].bytes += SEGMENT;
}

static void layout_name(struct layout *layout)
{
    memset(layout->blocks[1].name, 'n', TARN_KEEP_NAME_BYTES);
}

static void layout_names(struct layout *layout)
{
    memcpy(layout->blocks[1].name, layout->blocks[0].name, TARN_KEEP_NAME_BYTES);
}

static void layout_no_name(struct layout *layout)
{
    layout->blocks[1].name[0] = 0;
}

static void layout_states(struct layout *layout)
{
    for (unsigned i = 2; i < 100; i++)
        atomic_store(&layout->blocks[i].state, i);
    atomic_store(&layout->used, 100);
}

static const struct layout_change {
    const char *name;
    void (*make)(struct layout *);
} layout_changes[] = {
    {"of zeros", layout_of_zeros},
    {"version", layout_version},
    {"odd base", layout_odd_base},
    {"high base", layout_high_base},
    {"without size", layout_without_size},
    {"small", layout_small},
    {"huge", layout_huge},
    {"used beyond", layout_used_beyond},
    {"used all", layout_used_all},
    {"used none", layout_used_none},
    {"overlap", layout_overlap},
    {"outside", layout_outside},
    {"odd block", layout_odd_block},
    {"bytes", layout_bytes},
    {"long block", layout_long_block},
    {"name", layout_name},
    {"names", layout_names},
    {"no name", layout_no_name},
    {"states", layout_states},
};
enum { LAYOUT_CHANGES = sizeof layout_changes / sizeof *layout_changes };

static const struct layout_change *layout_change;

static void copy_layout(struct message *message)
{
    int file = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t size = sizeof(struct layout);
    CHECK(ftruncate(file, (off_t)size) == 0);
    struct layout *then = mmap(NULL, size, PROT_READ, MAP_SHARED, message->files[0], 0);
    struct layout *now = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(then != MAP_FAILED && now != MAP_FAILED);
    memcpy(now, then, offsetof(struct layout, blocks) + 100 * sizeof now->blocks[0]);
    layout_change->make(now);
    CHECK(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    CHECK(munmap(then, size) == 0 && munmap(now, size) == 0);
    replace(message, 0, file);
}

/* ---- The relay ---- */

static int listen_at(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    (void)unlink(path);
    memcpy(name.sun_path, path, strlen(path));
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&name, sizeof name) == 0);
    CHECK(listen(listener, 8) == 0);
    return listener;
}

/* Carries one connection's messages, and changes the answer whose turn it is. */
static void carry(int client, int server, const struct change *change, unsigned nth, unsigned *said)
{
    struct message message;
    struct pollfd ends[] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
    for (bool open = true; open;) {
        if (poll(ends, 2, -1) < 0)
            continue;
        if (ends[0].revents) {
            open = get(client, &message) && put(server, &message, 0);
        } else {
            open = get(server, &message);
            if (open && ++*said == nth)
                change->make(&message);
            if (message.late_ms)
                poll(NULL, 0, (int)message.late_ms);
            open = open && !message.hangs_up && put(client, &message, 0);
        }
        close_files(&message);
    }
    close(client);
    close(server);
}

/* A process that relays, since the good owner gives pools to processes. */
static pid_t start_relay(const char *path, const struct change *change, unsigned nth)
{
    int listener = listen_at(path);
    fflush(NULL);
    pid_t relay = fork();
    CHECK(relay >= 0);
    if (relay == 0) {
        unsigned said = 0;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            int server = wire_connect(keep_path);
            if (client < 0 || server < 0)
                _exit(1);
            carry(client, server, change, nth, &said);
        }
    }
    close(listener);
    return relay;
}

/* ---- What a process of a broken owner does ---- */

static bool is_allowed(tarn_status status)
{
    return status == TARN_OK || status == TARN_ERROR_SYSTEM || status == TARN_ERROR_BUSY ||
           status == TARN_ERROR_DRIVER || status == TARN_ERROR_OUT_OF_MEMORY ||
           status == TARN_ERROR_DEVICE_LOST;
}

static void use_pool(tarn_pool *pool, const tarn_kept *kept, bool to_the_end)
{
    tarn_sealed_block block = {.size = sizeof block};
    char *more = NULL;
    if (kept->blocks == 2 && tarn_pool_block_find(pool, "second", &block) == TARN_OK &&
        block.bytes == 20 * MIB)
        CHECK(holds(block.pointer, 20 * MIB, 9));
    tarn_status status = tarn_pool_alloc(pool, 0, 30 * MIB, (void **)&more);
    CHECK(is_allowed(status));
    if (more) {
        fill(more, 30 * MIB, 5);
        OK(tarn_pool_block_seal(more, "third", NULL, NULL));
        CHECK(holds(more, 30 * MIB, 5));
        OK(tarn_free(more));
    }
    OK(tarn_pool_trim(pool, 0));
    if (!to_the_end)
        return;
    static const char *const names[] = {"first", "second"};
    for (int i = 0; i < 2; i++)
        if (tarn_pool_block_find(pool, names[i], &block) == TARN_OK)
            OK(tarn_free(block.pointer));
    OK(tarn_pool_release(pool));
}

static void be_victim(int socket, bool to_the_end)
{
    tarn_kept kept = {.size = sizeof kept};
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    alarm(120);
    wire_patience_ms = PATIENCE_MS;
    OK(tarn_free(alloc_on(0, MIB))); /* what a device opens is open */
    OK(tarn_device_trim(0, 0));
    int files = open_files();
    tarn_status status = tarn_pool_keep("weights", &options, &pool, &kept);
    CHECK(is_allowed(status));
    CHECK(!status == (pool != NULL));
    char word = kept.blocks == 2 && kept.bytes == 23 * MIB + 100 ? 'w' : pool ? 'o' : 'r';
    if (pool)
        use_pool(pool, &kept, to_the_end);
    if (!pool) {
        CHECK(open_files() == files);
        nothing_is_left(0);
    }
    CHECK(send(socket, &word, 1, MSG_NOSIGNAL) == 1);
    _exit(0);
}

static void be_victim_at_first(int socket)
{
    be_victim(socket, false);
}

static void be_victim_to_the_end(int socket)
{
    be_victim(socket, true);
}

static void end_process(pid_t process)
{
    CHECK(kill(process, SIGKILL) == 0 && waitpid(process, NULL, 0) == process);
}

/* A process that was shown another pool may have trimmed what it did not know. */
static void drop_pool(void)
{
    char command[300];
    snprintf(command, sizeof command, "\"$TARN_PROGRAM\" keep --socket %s --drop weights",
             keep_path);
    CHECK(system(command) == 0); // NOLINT(cert-env33-c)
}

/* The pool as the next process has it, whole unless a process ended it. */
static void look_after(bool to_the_end)
{
    tarn_kept kept;
    tarn_sealed_block block = {.size = sizeof block};
    tarn_pool *pool = keep("weights", &kept);
    CHECK(to_the_end || kept.blocks >= 2);
    if (kept.blocks >= 2)
        CHECK(both_are_whole(pool));
    if (tarn_pool_block_find(pool, "third", &block) == TARN_OK)
        OK(tarn_free(block.pointer));
    if (tarn_pool_block_find(pool, "first", &block) == TARN_OK)
        OK(tarn_free(block.pointer));
    if (tarn_pool_block_find(pool, "second", &block) == TARN_OK)
        OK(tarn_free(block.pointer));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* One life of a process beside an owner that changes its nth answer. */
static void try_change(const char *what, const struct change *change, unsigned nth, bool to_the_end)
{
    struct told told;
    char path[120];
    kill_side(filled(&told));
    snprintf(path, sizeof path, "%s-relay", keep_path);
    pid_t relay = start_relay(path, change, nth);
    CHECK(setenv("TARN_KEEP", path, 1) == 0);
    struct side side = start_side(to_the_end ? "victim to the end" : "victim", SOCK_STREAM);
    CHECK(setenv("TARN_KEEP", keep_path, 1) == 0);
    char word = 0;
    bool lived = recv(side.socket, &word, 1, 0) == 1;
    if (!lived)
        fprintf(stderr, "with an owner that does \"%s\" (%s) in its answer %u\n", change->name,
                what, nth);
    CHECK(lived);
    end_side(side, 0);
    end_process(relay);
    CHECK(unlink(path) == 0);
    if (word == 'o' && !to_the_end)
        drop_pool();
    else
        look_after(to_the_end);
}

/* ---- Tests of a process ---- */

static void what_a_broken_owner_answers_harms_no_process(void **state)
{
    (void)state;
    /* Only what comes with segments reaches a vendor's driver. */
    unsigned from = machine->fail ? 2 : 1, to = machine->fail ? 2 : 4;
    for (unsigned i = 0; i < CHANGES; i++)
        for (unsigned nth = from; nth <= to; nth++)
            try_change("any", &changes[i], nth, false);
}

static void a_broken_owner_does_not_keep_a_pool_from_its_end(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CHANGES && !machine->fail; i++)
        try_change("any", &changes[i], 4 + i % 4, true);
}

static unsigned verb;

static void say_verb(struct message *message)
{
    message->said.verb = verb;
}

static void an_answer_to_another_question_is_none(void **state)
{
    (void)state;
    static const struct change change = {"say another verb", say_verb};
    for (verb = 0; verb <= KEEP_REFUSED + 1 && !machine->fail; verb++)
        for (unsigned nth = 1; nth <= 4; nth += 2)
            try_change("verb", &change, nth, false);
}

static void segments_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SEGMENT_CHANGES; i++)
        try_change("segments", &segment_changes[i], 2, false);
}

static void a_broken_layout_is_refused(void **state)
{
    (void)state;
    for (unsigned i = 0; i < LAYOUT_CHANGES; i++) {
        layout_change = &layout_changes[i];
        const struct change change = {layout_change->name, copy_layout};
        try_change("layout", &change, 1, false);
    }
}

/* A process reads its layout once: what another one writes there later is not believed. */
static void a_layout_that_changes_is_not_believed(void **state)
{
    (void)state;
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    char *blocks[8], name[16];
    unsigned char data[TARN_KEEP_DATA_BYTES];
    /* The layout is the only file of that name that this process has mapped. */
    char line[400];
    struct layout *layout = NULL;
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    while (!layout && fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:tarn-keep"))
            layout = (struct layout *)strtoull(line, NULL, 16); // NOLINT(performance-no-int-to-ptr)
    CHECK(fclose(maps) == 0 && layout != NULL);
    for (unsigned i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "block.%u", i);
        memset(data, (int)i + 1, sizeof data);
        blocks[i] = alloc_in(pool, 0, (i + 1) * 4096);
        OK(tarn_pool_block_seal(blocks[i], name, data, NULL));
    }
    OK(tarn_pool_block_unseal(blocks[3]));
    memset((void *)layout->blocks, 0xff, 100 * sizeof layout->blocks[0]);
    atomic_store(&layout->used, UINT64_MAX);
    OK(tarn_pool_block_seal(blocks[3], "block.3", NULL, NULL));
    for (unsigned i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "block.%u", i);
        tarn_sealed_block block = found(pool, name);
        CHECK(block.pointer == blocks[i] && block.bytes == (i + 1) * 4096);
        CHECK(i == 3 || block.data[5] == i + 1);
    }
    CHECK(layout->blocks[3].offset != UINT64_MAX); /* in the place that is free */
    for (unsigned i = 0; i < 8; i++)
        OK(tarn_free(blocks[i]));
    char *more = alloc_in(pool, 0, 4096);
    OK(tarn_pool_block_seal(more, "more", NULL, NULL));
    OK(tarn_free(more));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* Reads the pool, and finds what is sealed later in memory for which it asks the owner. */
static void be_reader(int socket)
{
    tarn_sealed_block block = {.size = sizeof block};
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    options.read = true;
    OK(tarn_pool_keep("weights", &options, &pool, NULL));
    say(socket, 'r');
    hear(socket, 'g');
    OK(tarn_pool_block_find(pool, "third", &block));
    CHECK(holds(block.pointer, 20 * MIB, 5));
    say(socket, 'w');
    _exit(0);
}

/* An owner that is killed while a reader asks hangs up: the reader asks the next one. The first
 * owner has ended before. The second hangs up in place of the pool, or of its segments. */
static void a_reader_asks_again_where_an_owner_hung_up(void **state)
{
    (void)state;
    static const struct change hanging_up = {"hang up", hang_up};
    for (unsigned nth = 1; nth <= 4; nth++) {
        tarn_kept kept;
        char path[120];
        tarn_pool *pool = keep("weights", &kept);
        void *first = alloc_in(pool, 0, MIB);
        OK(tarn_pool_block_seal(first, "first", NULL, NULL));
        snprintf(path, sizeof path, "%s-relay", keep_path);
        pid_t relay = start_relay(path, &hanging_up, 1000);
        CHECK(setenv("TARN_KEEP", path, 1) == 0);
        struct side side = start_side("reader", SOCK_STREAM);
        CHECK(setenv("TARN_KEEP", keep_path, 1) == 0);
        hear(side.socket, 'r');
        end_process(relay);
        relay = start_relay(path, &hanging_up, nth);
        char *third = alloc_in(pool, 0, 20 * MIB);
        fill(third, 20 * MIB, 5);
        OK(tarn_pool_block_seal(third, "third", NULL, NULL));
        say(side.socket, 'g');
        hear(side.socket, 'w');
        end_side(side, 0);
        end_process(relay);
        CHECK(unlink(path) == 0);
        OK(tarn_free(third));
        OK(tarn_free(first));
        OK(tarn_pool_release(pool));
    }
}

/* ---- The test ---- */

static void prepare_device(void)
{
    host_start_with(1, 256 * MIB);
}

static int prepare(void **state)
{
    (void)state;
    prepare_device();
    keep_name_socket("keep-hostile");
    return 0;
}

static const struct role roles[] = {
    {"fill and wait", fill_and_wait},
    {"victim", be_victim_at_first},
    {"reader", be_reader},
    {"victim to the end", be_victim_to_the_end},
    {NULL, NULL},
};

#define TEST(name) cmocka_unit_test_setup_teardown(name, owner_begins, owner_ends)

int main(int argc, char **argv)
{
    if (role_play(argc, argv, prepare_device, roles))
        return 0;
    if (!keep_has_program())
        return 0;
    const struct CMUnitTest tests[] = {
        TEST(what_a_broken_owner_answers_harms_no_process),
        TEST(a_broken_owner_does_not_keep_a_pool_from_its_end),
        TEST(an_answer_to_another_question_is_none),
        TEST(segments_that_do_not_fit_are_refused),
        TEST(a_reader_asks_again_where_an_owner_hung_up),
        TEST(a_broken_layout_is_refused),
        TEST(a_layout_that_changes_is_not_believed),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
