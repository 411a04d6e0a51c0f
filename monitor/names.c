#include "config.h"

#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "buf.h"
#include "names.h"
#include "utf8.h"

void
id_part(char out[ID_PART_SIZE], const void *data, size_t len)
{
	unsigned char h[crypto_hash_sha256_BYTES];

	crypto_hash_sha256(h, data, len);
	memcpy(out, "id-", 3);
	sodium_bin2hex(out + 3, ID_PART_SIZE - 3, h, sizeof(h));
}

static int
kept_in_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	    (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

char *
identity_name(const char *worker)
{
	char part[ID_PART_SIZE];
	struct buf b;
	size_t i, k, w, len = strlen(worker);
	uint32_t cp;
	int replaced = 0;

	buf_init(&b);
	for (i = 0; i < len; i += w) {
		w = utf8_decode((const uint8_t *)worker + i, len - i, &cp);
		if (w == 0)
			w = utf8_bad_length(
			    (const uint8_t *)worker + i, len - i);
		if (w == 1 && kept_in_name(worker[i])) {
			buf_addc(&b, (uint8_t)worker[i]);
			continue;
		}
		replaced = 1;
		for (k = utf8_units(worker + i, w); k > 0; k--)
			buf_addc(&b, '_');
	}
	if (replaced) {
		id_part(part, worker, len);
		buf_addf(&b, "-%.16s", part + 3);
	}
	buf_adds(&b, ".json");
	return buf_steal(&b);
}

char *
identity_default_path(const char *home, const char *worker)
{
	char *name, *path;

	name = identity_name(worker);
	path = xasprintf("%s/.config/librechat/code/%s", home, name);
	free(name);
	return path;
}

char *
state_dir(const char *home, const char *canonical, const char *worker)
{
	char d[ID_PART_SIZE], w[ID_PART_SIZE];

	id_part(d, canonical, strlen(canonical));
	id_part(w, worker, strlen(worker));
	return xasprintf(
	    "%s/.local/state/librechat/code/quarantines/%s/%s", home, d, w);
}

char *
marker_name(const char *root)
{
	char r[ID_PART_SIZE];

	id_part(r, root, strlen(root));
	return xasprintf("%s.json", r);
}

char *
default_workspace_path(const char *home, const char *url, const char *security,
    const char *worker, const char *id)
{
	char s[ID_PART_SIZE], w[ID_PART_SIZE], i[ID_PART_SIZE];
	struct buf b;
	size_t n = strlen(url);

	buf_init(&b);
	while (n > 0 && url[n - 1] == '/')
		n--;
	buf_add(&b, url, n);
	buf_addc(&b, '\0');
	buf_adds(&b, security);
	id_part(s, b.data, b.len);
	buf_wipe(&b);
	id_part(w, worker, strlen(worker));
	id_part(i, id, strlen(id));
	return xasprintf("%s/.local/share/librechat/code/workspaces/%s/%s/%s",
	    home, s, w, i);
}

void
policy_digest(char out[POLICY_DIGEST_SIZE], const char *policy, int native,
    char *const *domains, size_t n, const char *github)
{
	unsigned char h[crypto_hash_sha256_BYTES];
	struct buf b;
	size_t i;

	buf_init(&b);
	buf_adds(&b, policy);
	if (native) {
		buf_addc(&b, '\0');
		buf_adds(&b, "native-srt");
		buf_addc(&b, '\0');
		for (i = 0; i < n; i++) {
			if (i > 0)
				buf_addc(&b, '\0');
			buf_adds(&b, domains[i]);
		}
		buf_addc(&b, '\0');
		buf_adds(&b, github);
	}
	crypto_hash_sha256(h, b.data, b.len);
	sodium_bin2hex(out, POLICY_DIGEST_SIZE, h, sizeof(h));
	buf_free(&b);
}

char *
trimmed(const char *s)
{
	size_t len = strlen(s), start = 0, end, i, w;
	uint32_t cp;

	for (end = i = 0; i < len; i += w) {
		w = utf8_decode((const uint8_t *)s + i, len - i, &cp);
		if (w > 0 && utf8_blank(s + i, w)) {
			if (start == i)
				start = i + w;
			continue;
		}
		if (w == 0)
			w = 1;
		end = i + w;
	}
	if (end < start)
		end = start;
	return xstrndup(s + start, end - start);
}
