/*
 * A pty binding on posix_openpt, with places where a test binding does something else.
 *
 * Every binding leaves traces beside its own file, so that a test sees what was called and by
 * whom: `loaded` holds the process numbers that loaded it, `opens` a letter for each open.
 *
 * A binding defines what it changes, then includes this:
 *   ON_LOAD          what the constructor does
 *   ON_OPEN(count)   what open does first, at the count-th open of all processes together
 *   ON_RESIZE(cols)  what resize does first
 *   VERSION          what the version function returns
 *   BY_NAME          the slave is given by its name
 *   DEAF             the slave given is another pty's
 *   SHAPELESS        the size is not set
 *   NO_VERSION, NO_WORDS   the function is not there
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shellward_pty.h"

#ifndef ON_LOAD
#define ON_LOAD
#endif
#ifndef ON_OPEN
#define ON_OPEN(count) (void)(count)
#endif
#ifndef ON_RESIZE
#define ON_RESIZE(cols) (void)(cols)
#endif
#ifndef VERSION
#define VERSION SHELLWARD_PTY_ABI_VERSION
#endif

struct shellward_pty {
    int master;
    int slave;
    int other;
};

static char words[200];

/* Opens the file of this name beside the library. */
__attribute__((unused)) static int beside(const char *name, int flags)
{
    Dl_info info;
    char path[4096];
    char *slash;
    if (!dladdr((void *)&beside, &info) || strlen(info.dli_fname) > 3000)
        return -1;
    strcpy(path, info.dli_fname);
    slash = strrchr(path, '/');
    if (!slash)
        return -1;
    strcpy(slash + 1, name);
    return open(path, flags | O_CLOEXEC, 0600);
}

/* Adds text to that file; its length afterwards. */
__attribute__((unused)) static long note(const char *name, const char *text)
{
    struct stat stat = {0};
    int fd = beside(name, O_WRONLY | O_APPEND | O_CREAT);
    if (fd < 0)
        return -1;
    if (write(fd, text, strlen(text)) < 0 || fstat(fd, &stat) < 0)
        stat.st_size = -1;
    close(fd);
    return (long)stat.st_size;
}

/* The number that file holds, or 0. */
__attribute__((unused)) static int number_in(const char *name)
{
    char text[20] = {0};
    int fd = beside(name, O_RDONLY);
    if (fd < 0)
        return 0;
    if (read(fd, text, sizeof text - 1) < 0)
        text[0] = 0;
    close(fd);
    return atoi(text);
}

__attribute__((unused)) static void close_everything(void)
{
    for (int fd = 0; fd < 1024; fd++)
        close(fd);
}

__attribute__((constructor)) static void loaded(void)
{
    char text[32];
    snprintf(text, sizeof text, "%d\n", (int)getpid());
    note("loaded", text);
    ON_LOAD;
}

#ifndef NO_VERSION
uint32_t shellward_pty_abi_version(void)
{
    return VERSION;
}
#endif

static int failed(const char *what)
{
    int error = errno;
    snprintf(words, sizeof words, "%s: %s", what, strerror(error));
    return error;
}

static int master_and_slave(int *master, int *slave)
{
    char name[64];
    *master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*master < 0)
        return failed("posix_openpt");
    if (grantpt(*master) < 0 || unlockpt(*master) < 0 ||
        ptsname_r(*master, name, sizeof name) != 0 ||
        (*slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0) {
        int error = failed("the slave");
        close(*master);
        return error;
    }
    return 0;
}

int shellward_pty_open(uint16_t cols, uint16_t rows, shellward_pty **out)
{
    struct shellward_pty *pty;
    int error;
    long count = note("opens", "o");
    ON_OPEN(count);
    pty = calloc(1, sizeof *pty);
    if (!pty)
        return ENOMEM;
    pty->other = -1;
    error = master_and_slave(&pty->master, &pty->slave);
    if (error) {
        free(pty);
        return error;
    }
#ifdef DEAF
    {
        int master;
        close(pty->slave);
        error = master_and_slave(&master, &pty->slave);
        if (error)
            return error;
        pty->other = master;
    }
#endif
#ifdef BY_NAME
    close(pty->slave);
    pty->slave = -1;
#endif
#ifdef SHAPELESS
    (void)cols;
    (void)rows;
#else
    error = shellward_pty_resize(pty, cols, rows);
    if (error) {
        shellward_pty_close(pty);
        return error;
    }
#endif
    *out = pty;
    return 0;
}

int shellward_pty_master(const shellward_pty *pty)
{
    return pty->master;
}

int shellward_pty_slave(const shellward_pty *pty)
{
    return pty->slave;
}

int shellward_pty_slave_name(const shellward_pty *pty, char *buf, size_t len)
{
    return ptsname_r(pty->master, buf, len);
}

int shellward_pty_resize(shellward_pty *pty, uint16_t cols, uint16_t rows)
{
    struct winsize size = {.ws_row = rows, .ws_col = cols};
    ON_RESIZE(cols);
    return ioctl(pty->master, TIOCSWINSZ, &size) < 0 ? failed("TIOCSWINSZ") : 0;
}

int shellward_pty_close(shellward_pty *pty)
{
    close(pty->master);
    if (pty->other >= 0)
        close(pty->other);
    free(pty);
    return 0;
}

#ifndef NO_WORDS
int shellward_pty_last_error(char *buf, size_t len)
{
    if (!words[0] || len == 0)
        return ENOENT;
    snprintf(buf, len, "%s", words);
    return 0;
}
#endif
