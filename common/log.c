#include "config.h"

#include <sys/stat.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "log.h"
#include "times.h"
#include "utf8.h"

#define LOG_LINE_MAX 2048

/* Warnings of one kind: so many at once, then one in so many ms. */
#define LIMIT_BURST  10
#define LIMIT_REFILL 60000
#define LIMIT_KINDS  64

struct kind {
	const char *fmt; /* what makes a kind */
	int tokens;
	unsigned int held; /* lines not written */
	int64_t refilled; /* monotonic ms */
};

static struct {
	const char *process;
	int verbose;
	int journal;
	struct kind kinds[LIMIT_KINDS];
} lg;

/* systemd.exec(5): JOURNAL_STREAM is "device:inode" of the stream. */
static int
stderr_is_journal(void)
{
	struct stat st;
	const char *env;
	unsigned long long dev, ino;

	if ((env = getenv("JOURNAL_STREAM")) == NULL)
		return 0;
	if (sscanf(env, "%llu:%llu", &dev, &ino) != 2)
		return 0;
	if (fstat(STDERR_FILENO, &st) == -1)
		return 0;
	return st.st_dev == (dev_t)dev && st.st_ino == (ino_t)ino;
}

void
log_init(const char *process, int verbose)
{
	lg.process = process;
	lg.verbose = verbose;
	lg.journal = stderr_is_journal();
}

int
log_verbose(void)
{
	return lg.verbose;
}

/*
 * Copies what may be shown: printable ASCII and valid UTF-8 above U+009F as
 * they are, everything else as \xNN, so that no line can be forged.
 */
static size_t
log_escape(char *dst, size_t size, const char *src, size_t n)
{
	size_t i, used = 0, w;
	uint32_t cp;

	for (i = 0; i < n; i += w) {
		w = utf8_decode((const uint8_t *)src + i, n - i, &cp);
		if (w == 0 || cp < 0x20 || (cp >= 0x7f && cp <= 0x9f)) {
			w = 1;
			if (used + 5 > size)
				break;
			used += xsnprintf(dst + used, size - used, "\\x%02x",
			    (unsigned int)(unsigned char)src[i]);
			continue;
		}
		if (used + w > size)
			break;
		memcpy(dst + used, src + i, w);
		used += w;
	}
	return used;
}

static void __attribute__((__format__(__printf__, 3, 0)))
log_line(int pri, int with_errno, const char *fmt, va_list ap)
{
	char msg[LOG_LINE_MAX], line[LOG_LINE_MAX + 128];
	size_t used = 0, len;
	int n, save = errno;

	n = vsnprintf(msg, sizeof(msg), fmt, ap);
	if (n < 0)
		n = 0;
	len = (size_t)n < sizeof(msg) ? (size_t)n : sizeof(msg) - 1;
	if (with_errno && len < sizeof(msg) - 1)
		len += xsnprintf(
		    msg + len, sizeof(msg) - len, ": %s", strerror(save));

	if (lg.journal)
		used = xsnprintf(line, sizeof(line), "<%d>", pri);
	if (lg.process == NULL)
		used += xsnprintf(
		    line + used, sizeof(line) - used, "librechat-code: ");
	else
		used += xsnprintf(line + used, sizeof(line) - used,
		    "librechat-code[%s]: ", lg.process);
	used += log_escape(line + used, sizeof(line) - used - 1, msg, len);
	line[used++] = '\n';
	while (write(STDERR_FILENO, line, used) == -1 && errno == EINTR)
		;
	errno = save;
}

/*
 * Whether one more warning of this kind may be written: a fault that comes
 * back all the time must not fill a disk. Kinds beyond the table are not
 * limited.
 */
static int
permitted(const char *fmt)
{
	struct kind *k;
	int64_t now = time_mono_ms(), n;
	size_t i;

	for (i = 0; i < LIMIT_KINDS; i++)
		if (lg.kinds[i].fmt == fmt || lg.kinds[i].fmt == NULL)
			break;
	if (i == LIMIT_KINDS)
		return 1;
	k = &lg.kinds[i];
	if (k->fmt == NULL) {
		k->fmt = fmt;
		k->tokens = LIMIT_BURST;
		k->refilled = now;
	}
	if ((n = (now - k->refilled) / LIMIT_REFILL) > 0) {
		k->refilled += n * LIMIT_REFILL;
		k->tokens = n > LIMIT_BURST - k->tokens ? LIMIT_BURST
							: k->tokens + (int)n;
	}
	if (k->tokens == 0) {
		k->held++;
		return 0;
	}
	k->tokens--;
	if (k->held > 0) {
		n = k->held;
		k->held = 0;
		log_info(
		    "%lld lines like the next one were left out", (long long)n);
	}
	return 1;
}

void
log_warn(const char *fmt, ...)
{
	va_list ap;
	int save = errno;

	if (!permitted(fmt))
		return;
	errno = save;
	va_start(ap, fmt);
	log_line(LOG_PRI_WARNING, 1, fmt, ap);
	va_end(ap);
}

void
log_warnx(const char *fmt, ...)
{
	va_list ap;

	if (!permitted(fmt))
		return;
	va_start(ap, fmt);
	log_line(LOG_PRI_WARNING, 0, fmt, ap);
	va_end(ap);
}

void
log_info(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line(LOG_PRI_INFO, 0, fmt, ap);
	va_end(ap);
}

void
log_debug(const char *fmt, ...)
{
	va_list ap;

	if (lg.verbose < 1)
		return;
	va_start(ap, fmt);
	log_line(LOG_PRI_DEBUG, 0, fmt, ap);
	va_end(ap);
}

void
log_trace(const char *fmt, ...)
{
	va_list ap;

	if (lg.verbose < 2)
		return;
	va_start(ap, fmt);
	log_line(LOG_PRI_DEBUG, 0, fmt, ap);
	va_end(ap);
}

void
fatal(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line(LOG_PRI_ERR, 1, fmt, ap);
	va_end(ap);
	exit(1);
}

void
fatalx(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line(LOG_PRI_ERR, 0, fmt, ap);
	va_end(ap);
	exit(1);
}
