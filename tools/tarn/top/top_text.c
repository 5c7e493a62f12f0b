/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Lines and tables of `tarn top`. libsmartcols lays the tables out. */
#include "top/top_text.h"

#include <libsmartcols.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define BOLD "\033[1m"
#define PLAIN "\033[0m"

/* Lines ---------------------------------------------------------------------------------------- */

void top_put(struct top_frame *frame, const char *text, size_t length)
{
    if (frame->failed)
        return;
    if (frame->length + length + 1 > frame->capacity) {
        size_t capacity = 2 * frame->capacity + length + 4096;
        char *larger = realloc(frame->text, capacity);
        frame->failed = !larger;
        if (!larger)
            return;
        frame->text = larger;
        frame->capacity = capacity;
    }
    memcpy(frame->text + frame->length, text, length);
    frame->length += length;
    frame->text[frame->length] = '\0';
}

/* The bytes of a line that fill at most `width` columns, and how many they fill. */
static size_t measure(const char *line, size_t length, int width, int *filled)
{
    mbstate_t state = {0};
    *filled = 0;
    for (size_t at = 0; at < length;) {
        wchar_t letter;
        size_t bytes = mbrtowc(&letter, line + at, length - at, &state);
        /* No character of this locale: one byte, one column */
        if (bytes == 0 || bytes > length - at) {
            state = (mbstate_t){0};
            letter = L'?';
            bytes = 1;
        }
        int wide = wcwidth(letter) > 0 ? wcwidth(letter) : 0;
        if (*filled + wide > width)
            return at;
        *filled += wide;
        at += bytes;
    }
    return length;
}

static size_t fit(const char *line, size_t length, int width)
{
    int filled;
    return measure(line, length, width, &filled);
}

static int columns_of(const char *line, size_t length)
{
    int filled;
    (void)measure(line, length, INT_MAX / 2, &filled);
    return filled;
}

static void top_put_line(struct top_frame *frame, const struct top_look *look, const char *line,
                         size_t length, bool bold)
{
    while (length && line[length - 1] == ' ')
        length--;
    const char *cut = ""; /* what says that a line goes on */
    if (look->width && fit(line, length, look->width) < length) {
        length = fit(line, length, look->width - 1);
        cut = look->utf8 ? "\u2026" : ">";
    }
    if (bold && look->colour)
        top_put(frame, BOLD, strlen(BOLD));
    top_put(frame, line, length);
    top_put(frame, cut, strlen(cut));
    if (bold && look->colour)
        top_put(frame, PLAIN, strlen(PLAIN));
    top_put(frame, "\n", 1);
}

void top_say(struct top_frame *frame, const struct top_look *look, bool bold, const char *format,
             ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length > 0)
        top_put_line(frame, look, line,
                     (size_t)length < sizeof line ? (size_t)length : sizeof line - 1, bold);
}

/* Tables --------------------------------------------------------------------------------------- */

struct libscols_table *top_table_begin(const struct top_column *columns, size_t count)
{
    struct libscols_table *table = scols_new_table();
    bool done = table && scols_table_set_column_separator(table, "  ") == 0;
    for (size_t i = 0; i < count && done; i++)
        done = scols_table_new_column(table, columns[i].name, 0, columns[i].flags) != NULL;
    if (done)
        return table;
    scols_unref_table(table);
    return NULL;
}

void top_table_row(struct top_frame *frame, struct libscols_table *table, const char *const *cells,
                   size_t count)
{
    struct libscols_line *line = table ? scols_table_new_line(table, NULL) : NULL;
    frame->failed |= !line;
    for (size_t i = 0; i < count && !frame->failed; i++)
        frame->failed = scols_line_set_data(line, i, cells[i]) != 0;
}

/* The columns of the widest line, without the blanks at its end. */
static int width_of(const char *text)
{
    int widest = 0;
    for (const char *line = text; *line; line += line[strcspn(line, "\n")] == '\n') {
        size_t length = strcspn(line, "\n"), shown = length;
        while (shown && line[shown - 1] == ' ')
            shown--;
        int own = columns_of(line, shown);
        widest = own > widest ? own : widest;
        line += length;
    }
    return widest;
}

#define NAME_LEAST 8 /* columns that a name keeps */

/* Cuts a cell to `most` columns. False if memory is short. */
static bool shorten(struct libscols_line *line, size_t column, int most, bool utf8)
{
    const char *name = scols_cell_get_data(scols_line_get_cell(line, column));
    if (!name || columns_of(name, strlen(name)) <= most)
        return true;
    size_t kept = fit(name, strlen(name), most - 1), size = kept + sizeof "\u2026";
    char *text = malloc(size);
    if (text)
        snprintf(text, size, "%.*s%s", (int)kept, name, utf8 ? "\u2026" : ">");
    bool done = text && scols_line_set_data(line, column, text) == 0;
    free(text);
    return done;
}

/* Shortens the names of a table that is `excess` columns too wide: figures say more than the end of
 * a name. False if memory is short. */
static bool shorten_names(struct libscols_table *table, int excess, bool utf8)
{
    size_t lines = scols_table_get_nlines(table), column = 0;
    for (; column < scols_table_get_ncols(table); column++)
        if (strcmp(
                scols_cell_get_data(scols_column_get_header(scols_table_get_column(table, column))),
                "NAME") == 0)
            break;
    bool done = true;
    int longest = 0;
    for (size_t i = 0; i < lines && column < scols_table_get_ncols(table); i++) {
        const char *name =
            scols_cell_get_data(scols_line_get_cell(scols_table_get_line(table, i), column));
        int own = name ? columns_of(name, strlen(name)) : 0;
        longest = own > longest ? own : longest;
    }
    const int most = longest - excess > NAME_LEAST ? longest - excess : NAME_LEAST;
    for (size_t i = 0; i < lines && done && longest > most; i++)
        done = shorten(scols_table_get_line(table, i), column, most, utf8);
    return done;
}

/* The text of a table, for the caller to free. If it is too wide, names are shortened first. Then
 * columns without room are hidden from the right, and `hidden` gets their names. The first column
 * stays. */
static char *print_table(struct libscols_table *table, int width, bool utf8, char *hidden,
                         size_t size)
{
    char *text = NULL;
    hidden[0] = '\0';
    bool done = table && scols_print_table_to_string(table, &text) == 0;
    if (done && width && width_of(text) > width) {
        done = shorten_names(table, width_of(text) - width, utf8);
        free(text);
        text = NULL;
        done = done && scols_print_table_to_string(table, &text) == 0;
    }
    for (size_t last = table ? scols_table_get_ncols(table) : 0;
         done && width && last-- > 1 && width_of(text) > width;) {
        struct libscols_column *column = scols_table_get_column(table, last);
        const char *name = scols_cell_get_data(scols_column_get_header(column));
        size_t used = strlen(hidden), length = strlen(name);
        if (length + 2 < size - used) { /* names are put before those of later columns */
            memmove(hidden + length + (used ? 2 : 0), hidden, used + 1);
            memcpy(hidden, name, length);
            memcpy(hidden + length, used ? ", " : "", used ? 2 : 0);
        }
        free(text);
        text = NULL;
        done = scols_column_set_flags(column, SCOLS_FL_HIDDEN) == 0 &&
               scols_print_table_to_string(table, &text) == 0;
    }
    return text;
}

/* Names the columns that had no room, in as many lines as that takes. */
static void say_hidden(struct top_frame *frame, const struct top_look *look, const char *names)
{
    char line[300] = "no room for ";
    for (const char *name = names; *name;) {
        size_t length = strcspn(name, ","), used = strlen(line);
        bool last = !name[length], begun = line[used - 1] == ',';
        if (begun && used + 1 + length + !last > (size_t)look->width) {
            top_say(frame, look, false, "%s", line);
            snprintf(line, sizeof line, "  ");
            used = 2;
            begun = false;
        }
        snprintf(line + used, sizeof line - used, "%s%.*s", begun ? " " : "", (int)(length + !last),
                 name);
        name += length + (last ? 0 : 2);
    }
    if (*names)
        top_say(frame, look, false, "%s", line);
}

/* Puts the lines of a table, the first of them bold, and frees it. `left_out` rows had no room. */
void top_table_end(struct top_frame *frame, const struct top_look *look,
                   struct libscols_table *table, size_t left_out)
{
    char hidden[256];
    char *text = print_table(table, look->width, look->utf8, hidden, sizeof hidden);
    frame->failed |= !text;
    bool first = true;
    for (const char *line = text; !frame->failed && line && *line; first = false) {
        size_t length = strcspn(line, "\n");
        top_put_line(frame, look, line, length, first);
        line += length + (line[length] == '\n');
    }
    if (left_out)
        top_say(frame, look, false, "... and %zu more", left_out);
    say_hidden(frame, look, hidden);
    top_put(frame, "\n", 1);
    free(text);
    scols_unref_table(table);
}
