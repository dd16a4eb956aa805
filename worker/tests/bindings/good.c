#define _GNU_SOURCE
#include "shellward_pty.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
struct shellward_pty { int master; };
uint32_t shellward_pty_abi_version(void) { return SHELLWARD_PTY_ABI_VERSION; }
int shellward_pty_open(uint16_t cols, uint16_t rows, shellward_pty **out) {
    shellward_pty *p = malloc(sizeof *p);
    if (!p) return ENOMEM;
    p->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    int e = errno;
    if (p->master < 0) { free(p); return e; }
    if (grantpt(p->master) || unlockpt(p->master)) { e = errno; close(p->master); free(p); return e; }
    *out = p;
    return shellward_pty_resize(p, cols, rows);
}
int shellward_pty_master(const shellward_pty *p) { return p->master; }
int shellward_pty_slave(const shellward_pty *p) { (void)p; return -1; }
int shellward_pty_slave_name(const shellward_pty *p, char *buf, size_t len) { return ptsname_r(p->master, buf, len); }
int shellward_pty_resize(shellward_pty *p, uint16_t cols, uint16_t rows) {
    struct winsize w = { .ws_row = rows, .ws_col = cols };
    return ioctl(p->master, TIOCSWINSZ, &w) ? errno : 0;
}
int shellward_pty_close(shellward_pty *p) { close(p->master); free(p); return 0; }
int shellward_pty_last_error(char *buf, size_t len) { (void)buf; (void)len; return ENOENT; }
