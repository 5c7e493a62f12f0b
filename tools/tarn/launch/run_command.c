/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn run`. Creates a folder with a copy of the shim for this machine's driver. Runs the program
 * with that folder first on the loader's path. At the end prints what the books of its processes
 * say. On a machine without a driver the program runs as it would without `tarn run`. */
#include "base/file.h"
#include "command.h"
#include "launch/books.h"
#include "launch/driver_search.h"
#include "launch/group_file.h"
#include "launch/launch.h"
#include "launch/residue.h"
#include "launch/run_live.h"
#include "launch/run_output.h"
#include "launch/shim_copy.h"
#include "report/sink.h"
#include "sim_path.h"
#include "units.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "Usage: tarn run [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
    "\n"
    "Runs any CUDA or HIP program, unchanged, and records every allocation that the program and "
    "its libraries make:\n"
    "which library asked, how much, and of which kind. Without --pool each request goes to the "
    "driver as it is. When\n"
    "the program has ended, a summary by library is printed on standard error; while it runs, "
    "`tarn top` shows it.\n"
    "\n"
    "Options:\n"
    "      --limit LIMITS    Make the device appear smaller: 20G, or by device, such as 20G,1=10G "
    "or GPU-8a2b=5G. An\n"
    "                        allocation above the limit fails with the driver's own code for \"out "
    "of memory\"\n"
    "      --group NAME      Share the limit with all runs of this name; --limit sets it for all "
    "of them\n"
    "      --pool[=SIZE]     Serve small allocations of up to SIZE (1M) from tarn's pools. CUDA "
    "only\n"
    "  -o, --output FILE     Write a memory snapshot, which `tarn report` opens\n"
    "      --stacks          Record the whole stack of each allocation, in the snapshot of -o\n"
    "      --summary FILE    Write the summary to FILE instead\n"
    "      --quiet           Print no summary\n"
    "      --driver FILE     The driver to use, a libcuda.so.1 or libamdhip64.so.N, instead of the "
    "one that the\n"
    "                        loader finds\n"
    "      --audit           Use an audit library of the loader (LD_AUDIT), for programs that open "
    "the driver by an\n"
    "                        absolute path or have it in DT_RPATH\n"
    "  -h, --help            Show this help\n"
    "\n"
    "Exit status: that of PROGRAM, or 128 plus the number of the signal that ended it; 127 when it "
    "was not\n"
    "found, 126 when it could not be run, 1 when the shim could not be loaded or was removed while "
    "PROGRAM ran, or a\n"
    "file of -o or --summary was not written, 2 for an invalid command line.\n"
    "\n"
    "Examples:\n"
    "  tarn run -- python train.py\n"
    "      Which library holds the memory.\n"
    "  tarn run --limit 20G -- ./program\n"
    "      A program that gets an error where it would take a neighbour's memory.\n"
    "  tarn run --group night --limit 40G -- ./first & tarn run --group night -- ./second\n"
    "      Two programs that share 40 GiB.\n"
    "  tarn run -o run.pickle -- ./program && tarn report run.pickle\n"
    "      Everything that it allocated, in the order of time.\n";

struct arguments {
    const char *output, *summary, *driver, *group;
    char *limit;     /* of the heap */
    uint64_t pool;   /* bytes of the largest block that is pooled; 0: none is */
    bool pool_usual; /* --pool had no size */
    bool quiet, stacks, audit;
};

/* The largest block that is pooled where no size is said: where tarn's own small blocks end, as
 * PyTorch's do. */
#define POOL_USUAL (UINT64_C(1) << 20)
#define POOL_LEAST UINT64_C(512)
#define POOL_MOST (UINT64_C(1) << 30)

/* Milliseconds between two looks: usually; while a process is younger than YOUNG_MS; while a
 * process waits, which happens only under a limit. */
enum { PAUSE_MS = 200, PAUSE_YOUNG_MS = 20, PAUSE_LIMITED_MS = 5, YOUNG_MS = 3000 };
#define NS_PER_MS UINT64_C(1000000)

/* What a run has while it lasts. */
struct run {
    char folder[PATH_MAX]; /* empty: none */
    /* The folder, open and locked, so that systemd-tmpfiles leaves it alone. */
    int held;
    unsigned shims; /* which kinds of shims it has: bits */
    struct books books;
    struct group_file group;
    bool limited;
    bool pools;
    uint64_t sampled_ns;                       /* when, by CLOCK_REALTIME */
    struct stat output_before, summary_before; /* st_ino 0: there was no such file */
};

/* A device's name before "=": a number, or a UUID or its beginning. */
static bool is_device(const char *name, size_t length)
{
    size_t digits = 0;
    while (digits < length && isdigit((unsigned char)name[digits]))
        digits++;
    if (digits == length && length > 0 && length < 4)
        return true;
    if (length < 5 || (strncmp(name, "GPU-", 4) != 0 && strncmp(name, "MIG-", 4) != 0))
        return false;
    for (size_t i = 4; i < length; i++)
        if (!isdigit((unsigned char)name[i]) && name[i] != '-' && (name[i] < 'a' || name[i] > 'f'))
            return false;
    return true;
}

/* "20G,1=10G" as "21474836480,1=10737418240", which is what the shim reads. NULL where it makes no
 * sense. */
static char *limits_in_bytes(const char *text)
{
    size_t room = 24 * strlen(text) + 24, used = 0;
    char *bytes = calloc(1, room);
    while (bytes) {
        size_t length = strcspn(text, ",");
        const char *equals = memchr(text, '=', length);
        const char *size = equals ? equals + 1 : text;
        char *alone = strndup(size, length - (size_t)(size - text));
        uint64_t number = 0;
        bool good = alone && units_parse_memory(alone, &number) &&
                    (!equals || is_device(text, (size_t)(equals - text)));
        free(alone);
        if (!good) {
            free(bytes);
            return NULL;
        }
        used += (size_t)snprintf(bytes + used, room - used, "%s%.*s%llu", used ? "," : "",
                                 (int)(size - text), text, (unsigned long long)number);
        text += length;
        if (!*text++)
            break;
    }
    return bytes;
}

static bool take_limit(void *arguments, const char *value)
{
    struct arguments *own = arguments;
    free(own->limit);
    own->limit = limits_in_bytes(value);
    return own->limit;
}

static bool take_group(void *arguments, const char *value)
{
    ((struct arguments *)arguments)->group = value;
    return group_is_name(value);
}

static bool take_pool(void *arguments, const char *value)
{
    struct arguments *own = arguments;
    own->pool = POOL_USUAL;
    own->pool_usual = !value;
    return !value || (units_parse_bytes(value, &own->pool) && own->pool >= POOL_LEAST &&
                      own->pool <= POOL_MOST);
}

static bool take_output(void *arguments, const char *value)
{
    ((struct arguments *)arguments)->output = value;
    return *value && strcmp(value, "-") != 0; /* the program has standard output */
}

static bool take_summary(void *arguments, const char *value)
{
    ((struct arguments *)arguments)->summary = value;
    return *value;
}

static bool take_driver(void *arguments, const char *value)
{
    ((struct arguments *)arguments)->driver = value;
    return *value;
}

static const struct command_option options[] = {
    {.name = "limit", .wants = "sizes of 2 MiB or more, as 20G or 20G,1=10G", .take = take_limit},
    {.name = "group",
     .wants = "1 to 63 letters, digits, \".\", \"_\" and \"-\"",
     .take = take_group},
    {.name = "pool", .optional = true, .wants = "a size from 512 to 1G, as 1M", .take = take_pool},
    {.name = "output",
     .letter = 'o',
     .wants = "a file, and standard output is none",
     .take = take_output},
    {.name = "summary", .wants = "a file", .take = take_summary},
    {.name = "quiet", .flag = offsetof(struct arguments, quiet)},
    {.name = "driver", .wants = "a file", .take = take_driver},
    {.name = "stacks", .flag = offsetof(struct arguments, stacks)},
    {.name = "audit", .flag = offsetof(struct arguments, audit)},
    {.name = NULL},
};

/* The folder ----------------------------------------------------------------------------------- */

static void folder_remove(const char *folder)
{
    char path[PATH_MAX];
    DIR *entries = opendir(folder);
    struct dirent *entry;
    while (entries && (entry = readdir(entries)))
        if (entry->d_name[0] != '.' &&
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < (int)sizeof path)
            (void)unlink(path);
    if (entries)
        closedir(entries);
    (void)rmdir(folder);
}

static const struct shim_kind kinds[] = {
    {"libcuda.so.1", "cu", "cuInit", "libcuda.so.1", "libcuda.so", NULL},
    {"libamdhip64.so.7", "hip", "hipMalloc", "libamdhip64.so.0", "libamdhip64.so", "7"},
    {"libamdhip64.so.6", "hip", "hipMalloc", "libamdhip64.so.0", "libamdhip64.so", "6"},
    {"libamdhip64.so.5", "hip", "hipMalloc", "libamdhip64.so.0", "libamdhip64.so", "5"},
};
enum { SHIMS = sizeof kinds / sizeof *kinds };

/* Drivers of this machine; "" where there is none of a kind. */
struct drivers {
    char path[SHIMS][PATH_MAX];
    size_t count;
};

/* Puts a shim in front of a driver that can be opened. Of several shims with the same further name
 * the first gets that name. */
static bool place_shim(const struct run *run, const char *shims, const struct shim_kind *kind,
                       const char *driver, char *why, size_t size)
{
    char shim[PATH_MAX + 32], path[PATH_MAX + 32], other[PATH_MAX + 32];
    snprintf(shim, sizeof shim, "%s/%s%s", shims, run->pools && kind == &kinds[0] ? "pool/" : "",
             kind->file);
    snprintf(path, sizeof path, "%s/%s", run->folder, kind->name);
    snprintf(other, sizeof other, "%s/%s", run->folder, kind->link);
    bool placed = shim_copy(shim, kind, driver, path, why, size) &&
                  driver_is_behind(path, kind->has, driver, why, size);
    if (placed && symlink(kind->name, other) && errno != EEXIST) {
        snprintf(why, size, "%s: %s", other, strerror(errno));
        placed = false;
    }
    if (!placed) /* half a file would be found before the driver */
        (void)unlink(path);
    return placed;
}

/* True if the folder and its shims are still in place. A folder that was removed may have been
 * created again by anybody, so the inode is compared. */
static bool folder_is_there(const struct run *run)
{
    char path[PATH_MAX + 32];
    struct stat held, named;
    if (fstat(run->held, &held) || lstat(run->folder, &named) || held.st_ino != named.st_ino ||
        held.st_dev != named.st_dev)
        return false;
    for (size_t i = 0; i < SHIMS; i++) {
        snprintf(path, sizeof path, "%s/%s", run->folder, kinds[i].name);
        if (run->shims >> i & 1 && access(path, R_OK))
            return false;
    }
    return true;
}

static bool access_of(const struct run *run, const char *name)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", run->folder, name);
    return access(path, R_OK) == 0;
}

/* Creates a folder with the shims below `parent`. Every user can read the folder and nobody else
 * can write there, so a limit also holds for processes that change their user. */
static bool folder_fill(struct run *run, const char *parent, const char *shims,
                        const struct drivers *drivers, char *why, size_t size)
{
    if (snprintf(run->folder, sizeof run->folder, "%s/tarn-run-XXXXXX", parent) >=
            (int)sizeof run->folder ||
        !mkdtemp(run->folder)) {
        snprintf(why, size, "%s: %s", parent, strerror(errno));
        run->folder[0] = '\0';
        return false;
    }
    (void)chmod(run->folder, 0711);
    run->held = open(run->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    (void)flock(run->held, LOCK_EX | LOCK_NB);
    run->shims = 0;
    for (size_t i = 0; i < SHIMS; i++)
        if (drivers->path[i][0] && place_shim(run, shims, &kinds[i], drivers->path[i], why, size))
            run->shims |= 1u << i;
        /* The other is what the program needs, perhaps */
        else if (drivers->path[i][0] && i > 0 && drivers->count > 1)
            fprintf(stderr, "tarn run: %s will not be seen: %s\n", kinds[i].name, why);
        else if (drivers->path[i][0])
            break;
    bool done = run->shims && (!drivers->path[0][0] || access_of(run, kinds[0].name));
    if (done)
        return true;
    folder_remove(run->folder);
    if (run->held >= 0)
        close(run->held);
    run->folder[0] = '\0';
    return false;
}

/* Creates the folder in the first place from which files can be executed. */
static bool folder_make(struct run *run, const struct drivers *drivers, char *why, size_t size)
{
    char shims[PATH_MAX];
    const char *places[] = {getenv("TMPDIR"), "/tmp", getenv("XDG_RUNTIME_DIR")};
    if (!command_folder("run", TARN_RUN_FROM_BIN, shims, sizeof shims)) {
        snprintf(why, size, "the shim is neither beside this program nor in " TARN_RUN_FROM_BIN);
        return false;
    }
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (command_can_be_listed(places[i]) &&
            folder_fill(run, places[i], shims, drivers, why, size))
            return true;
    return false;
}

/* Takes the driver that the user named, and finds out its kind: CUDA by a symbol, HIP also by the
 * version in the file's name. */
static bool driver_take(const char *named, struct drivers *drivers, char *why, size_t size)
{
    char path[PATH_MAX];
    if (driver_find(named, kinds[0].has, drivers->path[0], PATH_MAX, why, size)) {
        drivers->count = 1;
        return true;
    }
    for (size_t i = 1; i < SHIMS; i++)
        if (strstr(named, kinds[i].name) &&
            driver_find(named, kinds[i].has, path, sizeof path, why, size)) {
            memcpy(drivers->path[i], path, sizeof path);
            drivers->count = 1;
            return true;
        }
    return false;
}

/* All that the loader finds. `why` is of the first kind. */
static void drivers_find(struct drivers *drivers, char *why, size_t size)
{
    char other[PATH_MAX + 256] = "";
    for (size_t i = 0; i < SHIMS; i++)
        drivers->count += driver_find(kinds[i].name, kinds[i].has, drivers->path[i], PATH_MAX,
                                      i ? other : why, i ? sizeof other : size);
}

/* A run within a run has what it asks for itself. */
static bool pool_set(uint64_t size)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)size);
    return (size ? setenv(RUN_POOL_VARIABLE, text, 1) : unsetenv(RUN_POOL_VARIABLE)) == 0;
}

static bool environment_set(const struct run *run, const struct arguments *arguments)
{
    const char *before = getenv("LD_LIBRARY_PATH");
    char *path = NULL;
    bool done =
        asprintf(&path, "%s%s%s", run->folder, before && *before ? ":" : "",
                 before ? before : "") >= 0 &&
        setenv("LD_LIBRARY_PATH", path, 1) == 0 &&
        setenv(RUN_FOLDER_VARIABLE, run->folder, 1) == 0 &&
        setenv(RUN_LOG_VARIABLE,
               !arguments->output  ? "0"
               : arguments->stacks ? "2"
                                   : "1",
               1) == 0 &&
        /* Else that of a run around */
        (!run->group.there || setenv(RUN_GROUP_VARIABLE, run->group.path, 1) == 0) &&
        (!arguments->limit || setenv(RUN_LIMIT_VARIABLE, arguments->limit, 1) == 0); /* likewise */
    free(path);
    return done && pool_set(arguments->pool);
}

/* The loader takes the audit library where it lies. */
static bool audit_set(char *why, size_t size)
{
    char shims[PATH_MAX], *list = NULL;
    const char *before = getenv("LD_AUDIT");
    if (!command_folder("run", TARN_RUN_FROM_BIN, shims, sizeof shims))
        return false;
    if (!command_can_be_listed(shims)) {
        snprintf(why, size, "%s: " COMMAND_NOT_LISTED, shims);
        return false;
    }
    if (asprintf(&list, "%s/libtarn_run_audit.so%s%s", shims, before && *before ? ":" : "",
                 before && *before ? before : "") < 0)
        return false;
    size_t length = strlen(shims) + sizeof "/libtarn_run_audit.so" - 1;
    char first[PATH_MAX + 64];
    snprintf(first, sizeof first, "%.*s", (int)length, list);
    bool done = access(first, R_OK) == 0 && setenv("LD_AUDIT", list, 1) == 0;
    if (!done)
        snprintf(why, size, "%s: %s", first, strerror(errno));
    free(list);
    return done;
}

/* The run -------------------------------------------------------------------------------------- */

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static bool any_is_young(const struct books *books, uint64_t now)
{
    for (size_t i = 0; i < books->count; i++)
        if (books->list[i].book->start_ns + YOUNG_MS * NS_PER_MS > now)
            return true;
    return false;
}

static void read_all(struct books *books)
{
    for (size_t i = 0; i < books->count; i++)
        books_read(&books->list[i]);
}

/* One look: finds new processes each time, and samples NVML's figures now and then. While a process
 * is young, samples are frequent, so that short processes are sampled too. A process that waits for
 * a sample gets it at once. */
static long look(void *user)
{
    struct run *run = user;
    uint64_t now = clock_ns();
    books_look(&run->books, run->folder);
    uint64_t pause = any_is_young(&run->books, now) ? PAUSE_YOUNG_MS : PAUSE_MS;
    bool due = now - run->sampled_ns >= pause * NS_PER_MS;
    if (due || run->limited)
        residue_sample(&run->books, !due);
    if (due) {
        run->sampled_ns = now;
        read_all(&run->books);
        run_live_show(&run->books);
    }
    return run->limited ? PAUSE_LIMITED_MS : PAUSE_YOUNG_MS;
}

/* A file is there whole or not at all; a device or a pipe has what it took. */
static bool text_write(const char *path, const char *text, size_t length)
{
    if (file_may_be_replaced(path)) {
        struct sink sink;
        tarn_status status = sink_to_file(&sink, path, 0666);
        if (!status) {
            sink_write(&sink, text, length);
            status = sink_end(&sink, false);
        }
        if (status)
            fprintf(stderr, "tarn run: %s\n", tarn_last_error());
        return !status;
    }
    FILE *out = fopen(path, "we");
    bool done = out && fwrite(text, 1, length, out) == length;
    int reason = errno;
    if (out && fclose(out) && done) {
        reason = errno;
        done = false;
    }
    if (!done)
        fprintf(stderr, "tarn run: %s could not be written: %s\n", path, strerror(reason));
    return done;
}

static bool summary_write(struct run *run, const char *path)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = path ? open_memstream(&text, &length) : stderr;
    if (out)
        run_summary_print(&run->books, &run->group, out);
    if (out == stderr)
        return fflush(out) == 0 && !ferror(out);
    bool done = out && !ferror(out);
    if (!out || fclose(out) || !done) {
        fputs("tarn run: no host memory for the summary\n", stderr);
        done = false;
    }
    done = done && text_write(path, text, length);
    free(text);
    return done;
}

static void look_at(const char *path, struct stat *file)
{
    if (!path || stat(path, file))
        file->st_ino = 0;
}

/* Says so where the file that is there is the one from before the run. */
static void say_if_old(const char *path, const struct stat *before)
{
    struct stat now;
    look_at(path, &now);
    if (S_ISREG(before->st_mode) && now.st_ino && now.st_ino == before->st_ino &&
        now.st_mtim.tv_sec == before->st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == before->st_mtim.tv_nsec)
        fprintf(stderr, "tarn run: the file %s is older than this run\n", path);
}

/* Writes what was asked for. False if a file that was asked for is missing. */
static bool files_write(struct run *run, const struct arguments *arguments)
{
    bool written = true;
    if ((!arguments->quiet || arguments->summary) && !summary_write(run, arguments->summary) &&
        arguments->summary) {
        say_if_old(arguments->summary, &run->summary_before);
        written = false;
    }
    if (!arguments->output)
        return written;
    if (!run->books.count)
        fprintf(stderr, "tarn run: %s was not written: no process %s\n", arguments->output,
                run->books.empty
                    ? "could be recorded"
                    : "used the driver, except perhaps one that had become another user");
    if (run->books.count && run_snapshots_write(&run->books, arguments->output))
        return written;
    say_if_old(arguments->output, &run->output_before);
    return false;
}

/* A process of the run that lives on, in the background, needs the shim when it opens the
 * driver. */
static bool is_over(const struct books *books)
{
    for (size_t i = 0; i < books->count; i++)
        if (!books_has_ended(&books->list[i]) && books_process_lives(&books->list[i]))
            return false;
    return true;
}

static int run_program(struct run *run, const struct arguments *arguments, char **command)
{
    int status = launch(command, look, run);
    bool was_run = status != LAUNCH_NOT_FOUND && status != LAUNCH_NOT_RUN;
    books_look(&run->books, run->folder);
    read_all(&run->books);
    run_live_end(&run->books);
    if ((was_run || run->books.count) && !files_write(run, arguments) && !status)
        status = COMMAND_FAILED;
    if (!folder_is_there(run)) {
        fprintf(stderr,
                "tarn run: %s was removed while the program ran: processes that began since were "
                "not recorded%s\n",
                run->folder, run->limited ? ", and had no limit" : "");
        status = status ? status : COMMAND_FAILED;
    } else if (is_over(&run->books)) {
        folder_remove(run->folder);
    }
    close(run->held);
    group_close(&run->group);
    books_close(&run->books);
    return status;
}

static long do_nothing(void *user)
{
    (void)user;
    return PAUSE_MS;
}

static int without_driver(const struct run *run, const struct arguments *arguments, char **command,
                          const char *why)
{
    fprintf(stderr, "tarn run: no CUDA driver and no HIP, so nothing will be seen (%s)\n", why);
    if (!arguments->output && !arguments->summary) {
        execvp(command[0], command);
        int reason = errno;
        fprintf(stderr, "tarn run: %s: %s\n", command[0], strerror(reason));
        return reason == ENOENT ? LAUNCH_NOT_FOUND : LAUNCH_NOT_RUN;
    }
    int status = launch(command, do_nothing, NULL);
    const char *files[] = {arguments->output, arguments->summary};
    const struct stat *before[] = {&run->output_before, &run->summary_before};
    for (size_t i = 0; i < 2; i++)
        if (files[i]) {
            fprintf(stderr, "tarn run: %s was not written: there is no driver\n", files[i]);
            say_if_old(files[i], before[i]);
        }
    return status ? status : COMMAND_FAILED;
}

/* Whether a file can be made at a path, asked before the program runs, which may take days. What is
 * there already is tried at the end. */
static bool has_folder(const char *path)
{
    struct stat there;
    const char *slash = strrchr(path, '/');
    char *folder = NULL;
    if (lstat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return true;
    if (asprintf(&folder, "%.*s.", slash ? (int)(slash + 1 - path) : 0, path) < 0)
        return true;
    bool can = access(folder, W_OK | X_OK) == 0;
    if (!can)
        fprintf(stderr, "tarn run: %s cannot be written: %s\n", path, strerror(errno));
    free(folder);
    return can;
}

static int run_with(const struct arguments *arguments, char **command)
{
    static struct run the_run;
    static struct drivers drivers;
    char why[PATH_MAX + 256] = "";
    if ((arguments->output &&
         (!command_may_write("run", arguments->output) || !has_folder(arguments->output))) ||
        (arguments->summary && !has_folder(arguments->summary)))
        return COMMAND_FAILED;
    look_at(arguments->output, &the_run.output_before);
    look_at(arguments->summary, &the_run.summary_before);
    if (!run_live_begin())
        return COMMAND_USAGE;
    if (arguments->driver && !driver_take(arguments->driver, &drivers, why, sizeof why)) {
        fprintf(stderr, "tarn run: %s: %s\n", arguments->driver, why);
        return COMMAND_FAILED;
    }
    if (!arguments->driver)
        drivers_find(&drivers, why, sizeof why);
    if (!drivers.count)
        return without_driver(&the_run, arguments, command, why);
    if (arguments->pool && !drivers.path[0][0]) {
        fputs("tarn run: --pool is for CUDA, and the driver here is HIP's: run the program without "
              "--pool\n",
              stderr);
        return COMMAND_FAILED;
    }
    the_run.pools = arguments->pool;
    if (arguments->group &&
        !group_open(&the_run.group, arguments->group, arguments->limit, why, sizeof why)) {
        fprintf(stderr, "tarn run: the group %s: %s\n", arguments->group, why);
        return COMMAND_FAILED;
    }
    if (!folder_make(&the_run, &drivers, why, sizeof why) ||
        !environment_set(&the_run, arguments) ||
        (arguments->audit && !audit_set(why, sizeof why))) {
        fprintf(stderr, "tarn run: the shim could not be put in place: %s\n",
                why[0] ? why : strerror(errno));
        if (the_run.folder[0])
            folder_remove(the_run.folder);
        group_close(&the_run.group);
        return COMMAND_FAILED;
    }
    the_run.limited = getenv(RUN_LIMIT_VARIABLE) || getenv(RUN_GROUP_VARIABLE);
    if (the_run.limited)
        residue_prepare();
    return run_program(&the_run, arguments, command);
}

static int run(int argc, char **argv)
{
    struct arguments arguments = {0};
    int status = command_parse_front(&run_command, options, &arguments, argc, argv);
    if (status == COMMAND_GO_ON && arguments.stacks && !arguments.output)
        status = command_usage_error("run", "--stacks is for the snapshot of -o");
    if (status == COMMAND_GO_ON)
        status = optind < argc ? run_with(&arguments, argv + optind)
                               : command_usage_error("run", "no program was named");
    uint64_t size;
    if (status == LAUNCH_NOT_FOUND && arguments.pool_usual &&
        units_parse_bytes(argv[optind], &size))
        fprintf(stderr, "tarn run: for a pool of blocks up to %s, write --pool=%s\n", argv[optind],
                argv[optind]);
    free(arguments.limit);
    return status;
}

const struct command run_command = {
    .name = "run",
    .summary = "Run any CUDA or HIP program and see which library holds the memory",
    .help = help,
    .run = run,
};
