#include "config.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <unistd.h>

#include "net.h"

/* The kernel adds 127.0.0.1/8 and ::1 by itself when lo comes up. */
int
net_loopback_up(void)
{
	struct ifreq ifr;
	int fd, r = -1, save;

	if ((fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) == -1)
		return -1;
	memset(&ifr, 0, sizeof(ifr));
	strcpy(ifr.ifr_name, "lo");
	if (ioctl(fd, SIOCGIFFLAGS, &ifr) == 0) {
		ifr.ifr_flags = (short)(ifr.ifr_flags | IFF_UP | IFF_RUNNING);
		r = ioctl(fd, SIOCSIFFLAGS, &ifr);
	}
	save = errno;
	close(fd);
	errno = save;
	return r;
}
