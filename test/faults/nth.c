/* Calls that fail, one by one: preloaded before libc.
 *
 * Counts the calls that touch files under NTH_ROOT, and those that make descriptors and
 * processes, and writes each down in the file NTH_LOG as `NUMBER CALL PATH`. Those from
 * number NTH_AT on, NTH_FOR of them, fail with NTH_ERRNO; with NTH_SPENT, the start of a
 * file's name, each number in one process only.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int counter;

static int number_in(const char *name)
{
	const char *text = getenv(name);

	return text ? atoi(text) : 0;
}

static void write_down(int number, const char *call, const char *path)
{
	char line[4300];
	const char *file = getenv("NTH_LOG");
	int log, size;

	log = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
		      0600);
	if (log < 0)
		return;
	size = snprintf(line, sizeof line, "%d %s %s\n", number, call, path);
	syscall(SYS_write, log, line, size);
	syscall(SYS_close, log);
}

/* Whether no process before us has let this number fail. */
static int is_unspent(int number)
{
	char name[4300];
	const char *spent = getenv("NTH_SPENT");
	int file;

	if (!spent)
		return 1;
	snprintf(name, sizeof name, "%s.%d", spent, number);
	file = syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
		       0600);
	if (file < 0)
		return 0;
	syscall(SYS_close, file);
	return 1;
}

/* Count one call; return whether it fails, with errno set. */
static int fails(const char *call, const char *path)
{
	int before = errno, first = number_in("NTH_AT"), number;

	if (!getenv("NTH_LOG"))
		return 0;
	number = atomic_fetch_add(&counter, 1) + 1;
	write_down(number, call, path);
	errno = before;
	if (!first || number < first || number >= first + number_in("NTH_FOR"))
		return 0;
	if (!is_unspent(number)) {
		errno = before;
		return 0;
	}
	errno = number_in("NTH_ERRNO");
	return 1;
}

/* The same for a path, absolute or below a directory's descriptor. */
static int fails_at(const char *call, int dir, const char *path)
{
	const char *root = getenv("NTH_ROOT");
	char link[64], whole[8400];
	int before = errno;
	ssize_t got;

	if (!root || !path)
		return 0;
	if (path[0] == '/')
		return strstr(path, root) ? fails(call, path) : 0;
	if (dir == AT_FDCWD)
		return 0;
	snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
	got = syscall(SYS_readlinkat, AT_FDCWD, link, whole, 4096);
	errno = before;
	if (got <= 0)
		return 0;
	snprintf(whole + got, sizeof whole - got, "/%s", path);
	return strstr(whole, root) ? fails(call, path) : 0;
}

static int fails_on(const char *call, int fd)
{
	char link[64], file[4096];
	int before = errno;
	ssize_t got;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = syscall(SYS_readlinkat, AT_FDCWD, link, file, sizeof file - 1);
	errno = before;
	if (got <= 0)
		return 0;
	file[got] = 0;
	return fails_at(call, AT_FDCWD, file);
}

#define REAL(name, type, ...)                                          \
	static type (*real)(__VA_ARGS__);                              \
	if (!real)                                                     \
		real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define OPEN(name)                                                     \
	int name(const char *path, int flags, ...)                     \
	{                                                              \
		va_list more;                                          \
		mode_t mode;                                           \
                                                                       \
		REAL(name, int, const char *, int, ...);               \
		va_start(more, flags);                                 \
		mode = va_arg(more, mode_t);                           \
		va_end(more);                                          \
		if (fails_at("open", AT_FDCWD, path))                  \
			return -1;                                     \
		return real(path, flags, mode);                        \
	}

#define OPENAT(name)                                                   \
	int name(int dir, const char *path, int flags, ...)            \
	{                                                              \
		va_list more;                                          \
		mode_t mode;                                           \
                                                                       \
		REAL(name, int, int, const char *, int, ...);          \
		va_start(more, flags);                                 \
		mode = va_arg(more, mode_t);                           \
		va_end(more);                                          \
		if (fails_at("open", dir, path))                       \
			return -1;                                     \
		return real(dir, path, flags, mode);                   \
	}

#define ON_FD(name)                                                    \
	int name(int fd)                                               \
	{                                                              \
		REAL(name, int, int);                                  \
		return fails_on(#name, fd) ? -1 : real(fd);            \
	}

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

/* openat2 has no function of its own: RQ asks the kernel by its number. */
long syscall(long number, ...)
{
	long a, b, c, d, e, f;
	va_list more;

	REAL(syscall, long, long, ...);
	va_start(more, number);
	a = va_arg(more, long);
	b = va_arg(more, long);
	c = va_arg(more, long);
	d = va_arg(more, long);
	e = va_arg(more, long);
	f = va_arg(more, long);
	va_end(more);
	if (number == SYS_openat2 && fails_at("open", (int)a, (const char *)b))
		return -1;
	return real(number, a, b, c, d, e, f);
}

ON_FD(fsync)
ON_FD(fdatasync)
ON_FD(syncfs)

ssize_t write(int fd, const void *data, size_t size)
{
	REAL(write, ssize_t, int, const void *, size_t);
	return fails_on("write", fd) ? -1 : real(fd, data, size);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t at)
{
	REAL(pwrite64, ssize_t, int, const void *, size_t, off_t);
	return fails_on("pwrite", fd) ? -1 : real(fd, data, size, at);
}

int ftruncate64(int fd, off_t size)
{
	REAL(ftruncate64, int, int, off_t);
	return fails_on("ftruncate", fd) ? -1 : real(fd, size);
}

int mkdir(const char *path, mode_t mode)
{
	REAL(mkdir, int, const char *, mode_t);
	return fails_at("mkdir", AT_FDCWD, path) ? -1 : real(path, mode);
}

int mkdirat(int dir, const char *path, mode_t mode)
{
	REAL(mkdirat, int, int, const char *, mode_t);
	return fails_at("mkdir", dir, path) ? -1 : real(dir, path, mode);
}

int rename(const char *from, const char *to)
{
	REAL(rename, int, const char *, const char *);
	return fails_at("rename", AT_FDCWD, from) ? -1 : real(from, to);
}

int renameat(int one, const char *from, int other, const char *to)
{
	REAL(renameat, int, int, const char *, int, const char *);
	return fails_at("rename", one, from) ? -1 : real(one, from, other, to);
}

int link(const char *from, const char *to)
{
	REAL(link, int, const char *, const char *);
	return fails_at("link", AT_FDCWD, from) ? -1 : real(from, to);
}

int linkat(int one, const char *from, int other, const char *to, int flags)
{
	REAL(linkat, int, int, const char *, int, const char *, int);
	return fails_at("link", one, from) ? -1 : real(one, from, other, to, flags);
}

int unlink(const char *path)
{
	REAL(unlink, int, const char *);
	return fails_at("unlink", AT_FDCWD, path) ? -1 : real(path);
}

int rmdir(const char *path)
{
	REAL(rmdir, int, const char *);
	return fails_at("rmdir", AT_FDCWD, path) ? -1 : real(path);
}

int unlinkat(int dir, const char *path, int flags)
{
	REAL(unlinkat, int, int, const char *, int);
	return fails_at("unlink", dir, path) ? -1 : real(dir, path, flags);
}

DIR *opendir(const char *path)
{
	REAL(opendir, DIR *, const char *);
	return fails_at("opendir", AT_FDCWD, path) ? NULL : real(path);
}

int pipe2(int ends[2], int flags)
{
	REAL(pipe2, int, int *, int);
	return fails("pipe2", "") ? -1 : real(ends, flags);
}

int accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
	REAL(accept4, int, int, struct sockaddr *, socklen_t *, int);
	return fails("accept4", "") ? -1 : real(fd, address, size, flags);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
		const posix_spawnattr_t *attributes, char *const *argv, char *const *env)
{
	REAL(posix_spawn, int, pid_t *, const char *, const posix_spawn_file_actions_t *,
	     const posix_spawnattr_t *, char *const *, char *const *);
	if (fails("posix_spawn", path))
		return errno;
	return real(pid, path, actions, attributes, argv, env);
}
