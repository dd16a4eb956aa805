/* A binding on /dev/ptmx. With a macro on the compiler's command line it breaks one promise:
 * VERSION=n, NO_CLOSE (a function is missing), GIVES_SLAVE (a descriptor in place of a name),
 * FAILS_OPEN, CRASHES_OPEN, PRINTS, CLOSES_ALL, CLOSES_STDIO,
 * HANGS, ABORTS, IGNORES_SIZE. */
#define _GNU_SOURCE
#include "shellward_pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION SHELLWARD_PTY_ABI_VERSION
#endif

struct shellward_pty {
    int master;
};

static char words[100];

__attribute__((constructor)) static void begin(void)
{
#ifdef ABORTS
    abort();
#endif
#ifdef HANGS
    for (;;)
        pause();
#endif
#ifdef CLOSES_ALL
    for (int fd = 0; fd < 1024; fd++)
        close(fd);
#endif
#ifdef CLOSES_STDIO
    for (int fd = 0; fd < 3; fd++)
        close(fd);
#endif
#ifdef PRINTS
    static char line[1024];
    memset(line, 'p', sizeof line);
    for (int i = 0; i < 10 * 1024; i++)
        if (write(1, line, sizeof line) < 0)
            _exit(9);
#endif
}

uint32_t shellward_pty_abi_version(void)
{
    return VERSION;
}

int shellward_pty_open(uint16_t cols, uint16_t rows, shellward_pty **out)
{
#ifdef FAILS_OPEN
    snprintf(words, sizeof words, "the ptys are out to lunch");
    return ENOSPC;
#endif
#ifdef CRASHES_OPEN
    *(volatile int *)0 = 1;
#endif
    int error;
    shellward_pty *pty = malloc(sizeof *pty);
    if (!pty)
        return ENOMEM;
    pty->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (pty->master < 0) {
        error = errno;
        free(pty);
        return error;
    }
    if (grantpt(pty->master) || unlockpt(pty->master)) {
        error = errno;
        shellward_pty_close(pty);
        return error;
    }
    *out = pty;
    return shellward_pty_resize(pty, cols, rows);
}

int shellward_pty_master(const shellward_pty *pty)
{
    return pty->master;
}

int shellward_pty_slave(const shellward_pty *pty)
{
#ifdef GIVES_SLAVE
    char name[64];
    if (ptsname_r(pty->master, name, sizeof name))
        return -1;
    return open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
#else
    (void)pty;
    return -1;
#endif
}

int shellward_pty_slave_name(const shellward_pty *pty, char *buf, size_t len)
{
#ifdef GIVES_SLAVE
    (void)pty, (void)buf, (void)len;
    return ENOSYS;
#else
    return ptsname_r(pty->master, buf, len);
#endif
}

int shellward_pty_resize(shellward_pty *pty, uint16_t cols, uint16_t rows)
{
#ifdef IGNORES_SIZE
    (void)pty, (void)cols, (void)rows;
    return 0;
#else
    struct winsize size = {.ws_row = rows, .ws_col = cols};
    return ioctl(pty->master, TIOCSWINSZ, &size) ? errno : 0;
#endif
}

#ifdef NO_CLOSE
__attribute__((visibility("hidden")))
#endif
int shellward_pty_close(shellward_pty *pty)
{
    close(pty->master);
    free(pty);
    return 0;
}

int shellward_pty_last_error(char *buf, size_t len)
{
    if (!*words)
        return ENOENT;
    snprintf(buf, len, "%s", words);
    return 0;
}
