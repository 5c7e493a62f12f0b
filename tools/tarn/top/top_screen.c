/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The terminal: the alternate screen, where each frame is written over the one before it in a
 * single write, so that nothing flickers; keys without an echo; signals. A signal is noted and
 * looked at by the loop, which a pipe wakes; so the terminal is put back by ordinary code, whatever
 * ends it. */
#include "top/top_screen.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"
#define TABLE_ROWS 12 /* of each table on a screen */

enum signal_kind { SIGNAL_END = 'e', SIGNAL_STOP = 's', SIGNAL_RESIZE = 'r' };

static int wake[2]; /* a pipe: a letter a signal */

static void note_signal(int number)
{
    int code = errno;
    char kind = number == SIGWINCH ? SIGNAL_RESIZE : number == SIGTSTP ? SIGNAL_STOP : SIGNAL_END;
    ssize_t written = write(wake[1], &kind, 1);
    (void)written;
    errno = code;
}

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};
enum { SIGNALS = sizeof signals / sizeof *signals };

struct screen {
    struct termios before;
    struct sigaction actions[SIGNALS]; /* before */
    struct top_frame frame;
    struct top_look look;
    int height;
    char key; /* the last one that was pressed */
    const char *help;
};

static void enter(const struct screen *screen)
{
    struct termios raw = screen->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    (void)file_write(STDOUT_FILENO, ENTER, strlen(ENTER));
}

static void leave(const struct screen *screen)
{
    (void)file_write(STDOUT_FILENO, LEAVE, strlen(LEAVE));
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &screen->before);
}

static bool begin(struct screen *screen)
{
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    if (tcgetattr(STDIN_FILENO, &screen->before) || pipe2(wake, O_CLOEXEC | O_NONBLOCK))
        return false;
    for (int i = 0; i < SIGNALS; i++)
        sigaction(signals[i], &action, &screen->actions[i]);
    enter(screen);
    return true;
}

static void end(struct screen *screen)
{
    leave(screen);
    for (int i = 0; i < SIGNALS; i++)
        sigaction(signals[i], &screen->actions[i], NULL);
    close(wake[0]);
    close(wake[1]);
}

static void measure(struct screen *screen)
{
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row;
    screen->look.width = known ? size.ws_col : 80;
    screen->height = known ? size.ws_row : 24;
}

/* The frame with the escapes that put it over the last one: as many lines as the screen has, the
 * last of which is the help. */
static bool draw(struct screen *screen)
{
    static const char rest[] = "\033[K\r\n";
    const struct top_frame *frame = &screen->frame;
    size_t room = 2 * frame->length + (size_t)screen->height * sizeof rest + strlen(screen->help) +
                  256,
           at = 0;
    char *text = frame->failed ? NULL : malloc(room);
    if (!text)
        return false;
    at += (size_t)snprintf(text, room, "\033[H");
    const char *line = frame->text;
    for (int i = 0; i + 1 < screen->height && line && *line; i++) {
        size_t length = strcspn(line, "\n");
        memcpy(text + at, line, length);
        memcpy(text + at + length, rest, sizeof rest - 1);
        at += length + sizeof rest - 1;
        line += length + (line[length] == '\n');
    }
    const char *more = line && *line ? " more with a higher window or --once" : "";
    int fits = screen->look.width - 2, help = fits - (int)strlen(more);
    at += (size_t)snprintf(text + at, room - at, "\033[J\033[7m%.*s\033[0m%.*s",
                           help > 0 ? help : 0, screen->help, fits > 0 ? fits : 0, more);
    bool done = file_write(STDOUT_FILENO, text, at);
    free(text);
    return done;
}

/* Waits for a key, a signal, or the time. False when it is to end. */
static bool wait_for(struct screen *screen, int ms)
{
    struct pollfd files[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                             {.fd = wake[0], .events = POLLIN}};
    char letters[64];
    if (poll(files, 2, ms) <= 0)
        return true;
    ssize_t count = files[1].revents & POLLIN ? read(wake[0], letters, sizeof letters) : 0;
    for (ssize_t i = 0; i < count; i++) {
        if (letters[i] == SIGNAL_END)
            return false;
        if (letters[i] == SIGNAL_STOP) {
            leave(screen);
            raise(SIGSTOP);
            enter(screen);
        }
    }
    if (!(files[0].revents & (POLLIN | POLLHUP | POLLERR)))
        return true;
    count = read(STDIN_FILENO, letters, sizeof letters);
    for (ssize_t i = 0; i < count; i++) {
        screen->key = letters[i];
        if (letters[i] == 'q' || letters[i] == 'Q')
            return false;
    }
    return count > 0; /* the terminal is gone */
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* How the loop over readings ended. */
enum ending { ENDED_BY_USER, ENDED_WITH_PROCESS, ENDED_BY_FAILURE };

/* The reading on the screen, the one before it, if there is one, and room for the next. */
struct readings {
    struct top_reading *before, *shown, *next;
    bool has_before;
};

static void turn(struct readings *readings)
{
    struct top_reading *oldest = readings->before;
    readings->before = readings->shown;
    readings->shown = readings->next;
    readings->next = oldest;
    readings->has_before = true;
}

/* How long the process has been silent, if that is longer than it may be. */
static double silence(const struct readings *readings, double seconds)
{
    return seconds > top_patience(readings->shown) ? seconds : 0;
}

static enum ending loop(struct screen *screen, int file, struct readings *readings, double interval,
                        struct top_why *why)
{
    static struct top_history history; /* a process has one screen */
    double changed = now();
    screen->look.history = &history;
    top_history_add(&history, &readings->shown->survey);
    for (double due = 0;;) {
        double time = now();
        enum top_result result = TOP_NONE;
        if (time >= due) {
            result = top_read(file, readings->next, why);
            due = time + interval;
        }
        if (result == TOP_OK && readings->next->sequence != readings->shown->sequence) {
            turn(readings);
            top_history_add(&history, &readings->shown->survey);
            changed = time;
        }
        if (result == TOP_BAD)
            return ENDED_BY_FAILURE;
        if (result == TOP_ENDED || !page_is_shown(file))
            return ENDED_WITH_PROCESS;
        screen->look.silent = silence(readings, time - changed);
        measure(screen);
        top_frame_make(&screen->frame, readings->has_before ? readings->before : NULL,
                       readings->shown, &screen->look);
        if (!draw(screen))
            return ENDED_BY_FAILURE;
        if (!wait_for(screen, (int)((due - now()) * 1000) + 1))
            return ENDED_BY_USER;
    }
}

bool top_screen_run(int file, struct top_reading readings[3], double interval, struct top_look look)
{
    struct screen screen = {.look = look, .help = " q quits "};
    struct readings turns = {&readings[2], &readings[0], &readings[1], false};
    struct top_why why = {"the terminal could not be written to"};
    if (!begin(&screen)) {
        perror("tarn top: the terminal");
        return false;
    }
    screen.look.rows = TABLE_ROWS;
    enum ending ending = loop(&screen, file, &turns, interval, &why);
    end(&screen);
    if (ending == ENDED_WITH_PROCESS) {
        screen.look.silent = 0;
        screen.look.rows = 0;
        screen.look.history = NULL;
        top_frame_make(&screen.frame, NULL, turns.shown, &screen.look);
        if (!screen.frame.failed)
            (void)file_write(STDOUT_FILENO, screen.frame.text, screen.frame.length);
        printf("\n%s (process %llu) has ended; this was its last reading.\n",
               turns.shown->head.name, (unsigned long long)turns.shown->head.pid);
    } else if (ending == ENDED_BY_FAILURE) {
        fprintf(stderr, "tarn top: %s\n", why.text);
    }
    top_frame_finish(&screen.frame);
    return ending != ENDED_BY_FAILURE;
}

/* The machine ---------------------------------------------------------------------------------- */

struct machine {
    struct top_list list;
    struct fleet fleet;
    bool made;
};

static void machine_finish(struct machine *machine)
{
    fleet_finish(&machine->fleet);
    top_list_finish(&machine->list);
    *machine = (struct machine){0};
}

/* Reads all pages again. */
static bool machine_read(const char *directory, const struct machine *before,
                         enum fleet_order order, struct machine *machine)
{
    *machine = (struct machine){.made = true};
    if (top_list_make(directory, 0, &machine->list) &&
        fleet_make(&machine->list, before->made ? &before->fleet : NULL, order, &machine->fleet))
        return true;
    machine_finish(machine);
    return false;
}

static enum fleet_order order_of(char key, enum fleet_order order)
{
    for (int i = 0; i < FLEET_ORDERS; i++)
        if (fleet_orders[i].key == key)
            return (enum fleet_order)i;
    return order;
}

static bool machine_loop(struct screen *screen, const char *directory, double interval,
                         enum fleet_order order)
{
    struct machine machines[2] = {0};
    bool done = true;
    for (int turn = 0; done; turn = !turn) {
        double due = now() + interval;
        machine_finish(&machines[turn]);
        done = machine_read(directory, &machines[!turn], order, &machines[turn]);
        measure(screen);
        if (done)
            fleet_frame(&screen->frame, &machines[turn].fleet, &screen->look);
        done = done && draw(screen);
        screen->key = 0;
        if (!done || !wait_for(screen, (int)((due - now()) * 1000) + 1))
            break;
        order = order_of(screen->key, order);
    }
    machine_finish(&machines[0]);
    machine_finish(&machines[1]);
    return done;
}

bool top_screen_fleet(const char *directory, double interval, enum fleet_order order,
                      struct top_look look)
{
    char help[256];
    struct screen screen = {.look = look, .help = help};
    size_t at = (size_t)snprintf(help, sizeof help, " q quits; order:");
    for (int i = 0; i < FLEET_ORDERS; i++)
        at += (size_t)snprintf(help + at, sizeof help - at, " %c %s", fleet_orders[i].key,
                               fleet_orders[i].name);
    snprintf(help + at, sizeof help - at, " ");
    if (!begin(&screen)) {
        perror("tarn top: the terminal");
        return false;
    }
    bool done = machine_loop(&screen, directory, interval, order);
    end(&screen);
    if (!done)
        fputs("tarn top: memory is short, or the terminal could not be written to\n", stderr);
    top_frame_finish(&screen.frame);
    return done;
}
