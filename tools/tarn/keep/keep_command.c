/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn keep`: serves as the owner of kept pools, or asks a running owner. */
#include "command.h"
#include "json_print.h"
#include "keep/keep.h"
#include "name.h"
#include "units.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: tarn keep [--socket PATH]\n"
    "       tarn keep [--socket PATH] --list [--json]\n"
    "       tarn keep [--socket PATH] --drop NAME\n"
    "\n"
    "Owns device memory that outlives the processes that fill it (tarn_pool_keep()). It holds file "
    "descriptors, opens\n"
    "no driver, and gives a pool to the next process that asks for its name, once the process "
    "before has ended. It\n"
    "runs until SIGINT, SIGTERM or SIGHUP; what no process has mapped is lost then, but not if it "
    "runs as a service of\n"
    "systemd, which holds the descriptors over a restart (tarn-keep.socket, for each user). A "
    "reset "
    "of the GPU loses all.\n"
    "\n"
    "Options:\n"
    "      --socket PATH   Where processes connect; only the same user and root may (the variable "
    "TARN_KEEP)\n"
    "      --list          Print the pools that the owner at the socket keeps\n"
    "      --json          With --list: as JSON\n"
    "      --drop NAME     Give up a pool that no process has, and its memory\n"
    "  -h, --help          Show this help\n"
    "\n"
    "Exit status: 0 when all went well, or the owner was ended by a signal; 1 when something "
    "failed, 2 for an invalid\n"
    "command line.\n"
    "\n"
    "Examples:\n"
    "  tarn keep --socket /run/user/1000/tarn-keep &\n"
    "      An owner; programs are started with TARN_KEEP=/run/user/1000/tarn-keep.\n"
    "  systemctl --user enable --now tarn-keep.socket\n"
    "      An owner that is started when a program asks for it, and again after it was killed.\n"
    "  tarn keep --socket /run/user/1000/tarn-keep --list\n"
    "      Which pools there are, their sizes, and which process has each.\n";

struct arguments {
    const char *socket, *drop;
    bool list, json;
};

static bool take_socket(void *arguments, const char *value)
{
    ((struct arguments *)arguments)->socket = value;
    return *value && strlen(value) < KEEP_SOCKET_BYTES;
}

static bool take_drop(void *arguments, const char *value)
{
    ((struct arguments *)arguments)->drop = value;
    return *value && strlen(value) < TARN_KEEP_NAME_BYTES;
}

static const struct command_option options[] = {
    {.name = "socket", .wants = "a path of at most 107 bytes", .take = take_socket},
    {.name = "list", .flag = offsetof(struct arguments, list)},
    {.name = "json", .flag = offsetof(struct arguments, json)},
    {.name = "drop", .wants = "the name of a pool", .take = take_drop},
    {.name = NULL},
};

static int no_owner(const char *path)
{
    fprintf(stderr, "tarn keep: no owner answers at %s: %s\n", path,
            errno ? strerror(errno) : "the connection was closed");
    return COMMAND_FAILED;
}

static json_t *as_json(const struct keep_message *pool)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:o, s:o}", "name",
                     name_valid(pool->name).text, "driver", name_valid(pool->driver).text, "device",
                     name_valid(pool->device).text, "bytes", (json_int_t)pool->bytes, "segments",
                     (json_int_t)pool->count, "blocks", (json_int_t)pool->blocks, "readers",
                     (json_int_t)pool->readers, "lingering", (json_int_t)pool->from, "ended",
                     (int)(pool->to != 0), "process",
                     pool->process ? json_integer(pool->process) : json_null(), "group",
                     pool->text[0] ? json_string(name_valid(pool->text).text) : json_null());
}

static void print(const struct keep_message *pool)
{
    char who[160] = "";
    int length = pool->process ? snprintf(who, sizeof who, "process %lld", (long long)pool->process)
                               : snprintf(who, sizeof who, "%s", pool->to ? "ended" : "free");
    if (pool->readers)
        length += snprintf(who + length, sizeof who - (size_t)length, ", %llu read it",
                           (unsigned long long)pool->readers);
    if (pool->from)
        length += snprintf(who + length, sizeof who - (size_t)length, ", %s linger",
                           units_bytes(pool->from).text);
    if (pool->text[0])
        snprintf(who + length, sizeof who - (size_t)length, ", group %.63s", pool->text);
    printf("%-24s %10s  %4u segments  %6llu sealed blocks  %s  %s %s\n",
           name_shown(pool->name).text, units_bytes(pool->bytes).text, pool->count,
           (unsigned long long)pool->blocks, who, name_shown(pool->driver).text,
           name_shown(pool->device).text);
}

struct listing {
    bool json;
    json_t *array; /* NULL: memory was short, or text is printed */
    unsigned count;
};

static void list_pool(void *argument, const struct keep_message *pool)
{
    struct listing *listing = argument;
    listing->count++;
    if (listing->json)
        listing->array = append(listing->array, as_json(pool));
    else
        print(pool);
}

static int list(const char *path, int socket, bool json)
{
    struct listing listing = {.json = json, .array = json ? json_array() : NULL};
    bool came = keep_each(socket, list_pool, &listing), printed = came;
    if (!came)
        (void)no_owner(path);
    else if (json)
        printed = json_print(listing.array, stdout);
    else if (!listing.count)
        printed = puts("no pools") >= 0;
    json_decref(listing.array);
    return printed ? COMMAND_OK : COMMAND_FAILED;
}

static int drop(const char *path, int socket, const char *name)
{
    struct keep_message request = keep_message(KEEP_DROP), answer;
    memcpy(request.name, name, strlen(name));
    if (!keep_ask(socket, &request, &answer))
        return no_owner(path);
    if (answer.verb == KEEP_OK)
        return COMMAND_OK;
    fprintf(stderr, "tarn keep: pool %s was not dropped: %s\n", name, answer.text);
    return COMMAND_FAILED;
}

static int run(int argc, char **argv)
{
    struct arguments arguments = {.socket = getenv("TARN_KEEP")};
    int status = command_parse(&keep_command, options, &arguments, argc, argv);
    if (status != COMMAND_GO_ON)
        return status;
    if (optind < argc)
        return command_usage_error("keep", "takes options only, not \"%s\"", argv[optind]);
    if (!arguments.socket || !*arguments.socket)
        return command_usage_error("keep", "no socket was named: --socket PATH, or TARN_KEEP");
    if (arguments.list && arguments.drop)
        return command_usage_error("keep", "--list and --drop exclude each other");
    if (arguments.json && !arguments.list)
        return command_usage_error("keep", "--json goes with --list");
    if (!arguments.list && !arguments.drop)
        return keep_listen(arguments.socket);
    int socket = wire_connect(arguments.socket);
    if (socket < 0)
        return no_owner(arguments.socket);
    status = arguments.list ? list(arguments.socket, socket, arguments.json)
                            : drop(arguments.socket, socket, arguments.drop);
    close(socket);
    return status;
}

const struct command keep_command = {
    .name = "keep",
    .summary = "Own memory that outlives its process",
    .help = help,
    .run = run,
};
