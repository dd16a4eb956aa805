/*
 * shellward_pty.h -- what a native pty binding of Shellward exports.  ABI version 1.
 *
 * A binding is a shared library, named by `shellward serve --pty-binding LIB`.  It opens
 * pseudoterminals and nothing else: starting the shell, reading, writing and ending it are the
 * worker's.  It is loaded first by a sacrificial probe process, and then once by every worker
 * process that opens a terminal with it; never by the supervisor.  A crash in it takes down that
 * one process.
 *
 * BEFORE IT IS LOADED
 *   The path is absolute.  The file is a regular file, owned by root or by the worker's user, and
 *   not writable by its group or by others; the same holds for every directory above it and for
 *   every directory on the way of a symbolic link (a sticky directory of root, like /tmp, is
 *   accepted if what lies in it belongs to root or to the worker's user).
 *   It is loaded with RTLD_NOW | RTLD_LOCAL and never unloaded.  Libraries it depends on are the
 *   loader's business, and the binding's to choose well.
 *
 * ORDER OF CALLS
 *   shellward_pty_abi_version is looked up and called first.  If it does not return
 *   SHELLWARD_PTY_ABI_VERSION, nothing else is looked up or called.  Every other function below
 *   must be there.  For each pty: open; master; slave; slave_name if slave gave none; any number
 *   of resize; close.  There may be several ptys at a time, though a worker has one.
 *
 * THREADS AND SIGNALS
 *   Every call comes from the same thread, the only one of the process; none is made from a signal
 *   handler or between fork and exec.  The worker keeps some signals blocked and forks later, so a
 *   binding must not start threads that outlive a call, install signal handlers, change the signal
 *   mask, the working directory, the umask or the locale, or fork and leave a child.
 *
 * DESCRIPTORS
 *   A binding must not read, write, close or replace descriptors it did not open; that includes
 *   0, 1 and 2: it prints nothing.  A process whose descriptors were closed or replaced while the
 *   binding was loaded or opened a pty does not go on.  A binding opens its own with O_CLOEXEC,
 *   and a slave with O_NOCTTY (the process is the leader of a session without a terminal: the
 *   first one it opened without that flag would become its own, and the shell could not have it).
 *
 * ERRORS
 *   A function that returns int returns 0 or a positive errno value (ENOSPC: no pty left; ENOENT,
 *   ENODEV: there are none here; ENOSYS: not supported), unless it says otherwise.  errno itself
 *   is not looked at.  After a failed call, shellward_pty_last_error may give the words for it.
 */
#ifndef SHELLWARD_PTY_H
#define SHELLWARD_PTY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of everything in this file. */
#define SHELLWARD_PTY_ABI_VERSION 1u

/* An open pty.  The binding allocates it and decides what is in it. */
typedef struct shellward_pty shellward_pty;

/* Returns SHELLWARD_PTY_ABI_VERSION as it was when the binding was compiled. */
uint32_t shellward_pty_abi_version(void);

/*
 * Opens a pty of this size in character cells; neither is zero.  The size is set before the call
 * returns.  On success stores the pty, not NULL, in *out and returns 0; the worker gives it back
 * to shellward_pty_close.  On failure returns a positive errno value, and *out is not looked at.
 */
int shellward_pty_open(uint16_t cols, uint16_t rows, shellward_pty **out);

/*
 * Returns the descriptor of the master, or -1.  It stays the binding's, which closes it in
 * shellward_pty_close and not before.  The worker duplicates it, reads and writes through its
 * duplicate, and sets O_NONBLOCK on the open file that both share.
 */
int shellward_pty_master(const shellward_pty *pty);

/*
 * Returns a descriptor of the slave, or -1: then the worker asks for its name and opens it.
 * Asked once for each pty, after shellward_pty_master.  The descriptor is the worker's from then
 * on, which closes it: the binding keeps no descriptor of the slave open after this call, since
 * the end of the output never comes while anybody holds one.
 */
int shellward_pty_slave(const shellward_pty *pty);

/*
 * Writes the absolute path of the slave (/dev/pts/7) and a NUL to buf.  Returns 0; ERANGE if len
 * bytes do not hold it; ENOSYS if there is no name, which is fine if shellward_pty_slave gives a
 * descriptor.
 */
int shellward_pty_slave_name(const shellward_pty *pty, char *buf, size_t len);

/*
 * Changes the size and has the kernel tell the foreground processes (TIOCSWINSZ).
 */
int shellward_pty_resize(shellward_pty *pty, uint16_t cols, uint16_t rows);

/*
 * Closes the master and frees everything.  The pointer is not used again, whatever is returned.
 */
int shellward_pty_close(shellward_pty *pty);

/*
 * Writes words, valid UTF-8, for the last failure of any function above, and a NUL, to buf; at
 * most len bytes, shortened if need be.  Returns 0, or ENOENT if there is nothing to say (the
 * worker then uses the system's words for the errno value).
 */
int shellward_pty_last_error(char *buf, size_t len);

#ifdef __cplusplus
}
#endif

#endif /* SHELLWARD_PTY_H */
