/* A disk that tests can hold and break: preloaded before libc.
 *
 * In the directory SHIM_DIR: calls are written down in the file `calls`, one a line.
 * While a file `hold.CALL` exists the call waits, while `fail.CALL` exists it fails with
 * EIO (`full.CALL`: ENOSPC, `torn.CALL`: EUCLEAN); a text in that file limits it to paths
 * that hold the text. Of a rename it is the new path, as it was given.
 * A file `short.pwrite` cuts what is written in two, `full.pwrite` refuses it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void name_of(int fd, char *file, size_t size)
{
	char path[64];
	ssize_t got;

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	got = readlink(path, file, size - 1);
	file[got < 0 ? 0 : got] = 0;
}

static int wanted_for(const char *what, const char *call, const char *file)
{
	char path[4096], text[256];
	const char *dir = getenv("SHIM_DIR");
	ssize_t got;
	int asked;

	if (!dir)
		return 0;
	snprintf(path, sizeof path, "%s/%s.%s", dir, what, call);
	asked = open(path, O_RDONLY | O_CLOEXEC);
	if (asked < 0)
		return 0;
	got = read(asked, text, sizeof text - 1);
	text[got < 0 ? 0 : got] = 0;
	close(asked);
	return strstr(file, text) != NULL;
}

static int wanted(const char *what, const char *call, int fd)
{
	char file[4096];

	name_of(fd, file, sizeof file);
	return wanted_for(what, call, file);
}

static void note(const char *call, int fd)
{
	char path[4096], line[4200], file[4096];
	const char *dir = getenv("SHIM_DIR");
	int log;

	if (!dir)
		return;
	name_of(fd, file, sizeof file);
	snprintf(path, sizeof path, "%s/calls", dir);
	log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (log < 0)
		return;
	snprintf(line, sizeof line, "%s %s\n", call, file);
	if (write(log, line, strlen(line)) < 0)
		perror("shim");
	close(log);
}

static int trouble(const char *call, int fd)
{
	note(call, fd);
	while (wanted("hold", call, fd))
		usleep(2000);
	if (wanted("fail", call, fd))
		errno = EIO;
	else if (wanted("full", call, fd))
		errno = ENOSPC;
	else
		return 0;
	return 1;
}

#define SYNC(name)                                                     \
	int name(int fd)                                               \
	{                                                              \
		static int (*real)(int);                               \
                                                                       \
		if (trouble(#name, fd))                                \
			return -1;                                     \
		if (!real)                                             \
			real = (int (*)(int))dlsym(RTLD_NEXT, #name);  \
		return real(fd);                                       \
	}

SYNC(fsync)
SYNC(fdatasync)
SYNC(syncfs)

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);

static ssize_t written(int fd, const void *data, size_t size, off_t at)
{
	if (!real_pwrite)
		real_pwrite = (ssize_t (*)(int, const void *, size_t, off_t))
			dlsym(RTLD_NEXT, "pwrite64");
	if (wanted("short", "pwrite", fd))
		size /= 2;
	if (wanted("full", "pwrite", fd)) {
		errno = ENOSPC;
		return -1;
	}
	return real_pwrite(fd, data, size, at);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
	return written(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t at)
{
	return written(fd, data, size, at);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	static int (*real)(int, const char *, int, const char *);

	if (wanted_for("fail", "renameat", to)) {
		errno = EIO;
		return -1;
	}
	if (wanted_for("torn", "renameat", to)) {
		errno = EUCLEAN;
		return -1;
	}
	if (!real)
		real = (int (*)(int, const char *, int, const char *))dlsym(
			RTLD_NEXT, "renameat");
	return real(from_dir, from, to_dir, to);
}
