#include "config.h"

#include <sys/types.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <netinet/in.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Does with the file system and with sockets what mongod does when it starts
 * with its defaults: a lock file, preallocated and mapped journal files below
 * --dbpath, a Unix socket in /tmp whatever TMPDIR says, and TCP on loopback.
 * Serves one line to each client.
 *	mongodlike DBPATH PORT		(ends after two clients)
 */

static void
die(const char *what)
{
	perror(what);
	exit(14);
}

static void
storage(const char *dbpath)
{
	char path[512];
	struct flock fl;
	void *p;
	int fd;

	snprintf(path, sizeof(path), "%s/mongod.lock", dbpath);
	if ((fd = open(path, O_RDWR | O_CREAT, 0600)) == -1)
		die(path);
	memset(&fl, 0, sizeof(fl));
	fl.l_type = F_WRLCK;
	fl.l_whence = SEEK_SET;
	if (fcntl(fd, F_SETLK, &fl) == -1 || flock(fd, LOCK_EX | LOCK_NB) ||
	    ftruncate(fd, 0) == -1 || dprintf(fd, "%d\n", getpid()) < 0 ||
	    fsync(fd) == -1)
		die("lock");
	snprintf(path, sizeof(path), "%s/journal", dbpath);
	if (mkdir(path, 0777) == -1)
		die(path);
	snprintf(path, sizeof(path), "%s/journal/WiredTigerPreplog.1", dbpath);
	if ((fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOATIME, 0600)) ==
	    -1)
		die(path);
	if ((errno = posix_fallocate(fd, 0, 8 << 20)) != 0)
		die("preallocate");
	p = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die("map");
	memset(p, 0x42, 65536);
	if (msync(p, 65536, MS_SYNC) == -1 || fdatasync(fd) == -1)
		die("sync");
	close(fd);
	if ((fd = open(dbpath, O_RDONLY | O_DIRECTORY)) == -1 ||
	    fsync(fd) == -1)
		die("sync of the directory");
	close(fd);
}

static int
unix_listener(const char *port)
{
	struct sockaddr_un sun;
	int fd;

	memset(&sun, 0, sizeof(sun));
	sun.sun_family = AF_UNIX;
	snprintf(
	    sun.sun_path, sizeof(sun.sun_path), "/tmp/mongodb-%s.sock", port);
	if (unlink(sun.sun_path) == -1 && errno != ENOENT)
		die("Failed to unlink socket file");
	if ((fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) == -1 ||
	    bind(fd, (struct sockaddr *)&sun, sizeof(sun)) == -1)
		die(sun.sun_path);
	if (chmod(sun.sun_path, 0700) == -1 || listen(fd, 128) == -1)
		die(sun.sun_path);
	return fd;
}

static int
inet_listener(const char *port)
{
	struct sockaddr_in sin;
	int fd, on = 1;

	memset(&sin, 0, sizeof(sin));
	sin.sin_family = AF_INET;
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sin.sin_port = htons((unsigned short)atoi(port));
	if ((fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) == -1 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == -1 ||
	    bind(fd, (struct sockaddr *)&sin, sizeof(sin)) == -1 ||
	    listen(fd, 128) == -1)
		die("127.0.0.1");
	return fd;
}

static void
serve(int fd, const char *text)
{
	int c;

	if ((c = accept(fd, NULL, NULL)) == -1 ||
	    write(c, text, strlen(text)) == -1)
		die("accept");
	close(c);
}

int
main(int argc, char *argv[])
{
	int u, i;

	if (argc != 3)
		return 2;
	storage(argv[1]);
	u = unix_listener(argv[2]);
	i = inet_listener(argv[2]);
	printf("waiting for connections\n");
	fflush(stdout);
	serve(u, "over the socket file\n");
	serve(i, "over loopback\n");
	return 0;
}
