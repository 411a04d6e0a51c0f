/*
 * Unit tests of the serialiser, the signature check and the helpers, against
 * the tables and vectors of code-api-server 4.4, 4.6 and protocol 16.
 */
#include "config.h"

#include <string.h>

#include <sodium.h>

#include "auth.h"
#include "buf.h"
#include "canon.h"
#include "json.h"
#include "names.h"
#include "tap.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

/* A text, its length since it may hold a NUL, and its serialised form. */
static const struct {
	const char *in;
	const char *out; /* NULL: not JSON */
	const char *name;
} forms[] = {
	{ "{ \"b\" : 1, \"10\": 2, \"9\": 3, \"a\": 1.50, \"b\": 7 }",
	    "{\"9\":3,\"10\":2,\"b\":7,\"a\":1.5}", "table 4.4, row 1" },
	{ "{\"x\":1e3,\"y\":-0,\"z\":1E-7,\"w\":12345678901234567890}",
	    "{\"x\":1000,\"y\":0,\"z\":1e-7,\"w\":12345678901234567000}",
	    "table 4.4, row 2" },
	{ "{\"s\":\"\\/\\u000B\\u00e9\"}", "{\"s\":\"/\\u000b\xc3\xa9\"}",
	    "table 4.4, row 3" },
	{ "[1.0,1e400,-1e400,9007199254740993]",
	    "[1,null,null,"
	    "9007199254740992]",
	    "whole, overflowing and imprecise numbers" },
	{ "[1e21,123456789012345680000,1e-6,1e-7,0.1,5e-324,1.7976931348623157e"
	  "308]",
	    "[1e+21,123456789012345680000,0.000001,1e-7,0.1,5e-324,"
	    "1.7976931348623157e+308]",
	    "spellings of numbers" },
	{ "[2.9802322387695312e-8,5.684341886080802e-14,9.5367431640625e-7,"
	  "2.2250738585072014e-308,-1.5]",
	    "[2.9802322387695312e-8,5.684341886080802e-14,9.5367431640625e-7,"
	    "2.2250738585072014e-308,-1.5]",
	    "powers of two" },
	{ "\"\\b\\t\\n\\f\\r\\\"\\\\\\u0000\\u001f\\u007f\"",
	    "\"\\b\\t\\n\\f\\r\\\"\\\\\\u0000\\u001f\x7f\"",
	    "escapes of strings" },
	{ "\"\\u2028\\u2029\\ud83d\\ude00\"",
	    "\"\xe2\x80\xa8\xe2\x80\xa9\xf0\x9f\x98\x80\"",
	    "separators and a surrogate pair are literal" },
	{ "\"\\uD800\\uDFFFx\\udc00\\uD800\"",
	    "\"\xf0\x90\x8f\xbfx\\udc00\\ud800\"",
	    "lone surrogates are lower-case escapes" },
	{ "\"\\ud800\\u0041\\\\ud800\"", "\"\\ud800A\\\\ud800\"",
	    "half a pair before another escape; an escaped backslash" },
	{ "\xef\xbb\xbf[1]", "[1]", "a byte order mark is dropped" },
	{ "\"a\xff\xe2\x82z\xed\xa0\x80\"",
	    "\"a\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
	    "\"",
	    "invalid UTF-8 becomes U+FFFD" },
	{ "{\"4294967294\":1,\"4294967295\":2,\"01\":3,\"0\":4,\"-1\":5}",
	    "{\"0\":4,\"4294967294\":1,\"4294967295\":2,\"01\":3,\"-1\":5}",
	    "which names are array indices" },
	{ "{\"a\":1,\"b\":2,\"a\":{\"c\":[]}}", "{\"a\":{\"c\":[]},\"b\":2}",
	    "the last of duplicates at the place of the first" },
	{ "{}", "{}", "an empty object" },
	{ " [ true , false , null ] ", "[true,false,null]", "white space" },
	{ "{\"a\":1", NULL, "an unfinished text" },
	{ "[1] 2", NULL, "a text with something behind it" },
	{ "[01]", NULL, "a leading zero" },
	{ "[\"\\x\"]", NULL, "an unknown escape" },
	{ "[\"a\nb\"]", NULL, "a raw line feed in a string" },
	{ "/**/[]", NULL, "a comment" },
	{ "", NULL, "nothing" },
};

static void
test_forms(void)
{
	struct json *v;
	struct buf b;
	size_t i;

	for (i = 0; i < N(forms); i++) {
		v = json_parse(forms[i].in, strlen(forms[i].in));
		buf_init(&b);
		if (v != NULL)
			canon_json(&b, v);
		tap_same(v == NULL ? NULL : buf_cstr(&b), forms[i].out,
		    "serialised form: %s", forms[i].name);
		buf_free(&b);
		json_free(v);
	}
}

#define V_CREDENTIAL "CxIZICcuNTxDSlFYX2ZtdHuCiZCXnqWss7rByM_W3eQ"
#define P_CREDENTIAL "wc_5nQx2mV8Lr0KfT7uYb3Hj6Pd9Sg1Aoe4"
#define V_SEED \
	"404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f"
#define P_SEED \
	"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define LEASE_BODY                                                   \
	"{\"protocolVersion\":1,\"waitMs\":25000,\"incarnationId\":" \
	"\"yM_W3eTr8vkABw4VHCMqMTg_\"}"

static const struct {
	const char *name;
	const char *seed;
	const char *credential;
	const char *path;
	const char *timestamp;
	const char *nonce;
	const char *body; /* as sent */
	const char *hash; /* of the serialised form */
	size_t length; /* of the canonical string; 0 unknown */
	const char *signature;
} vectors[] = {
	{ "V1", V_SEED, V_CREDENTIAL, "/v1/bridge/workers/lab-vm-3/lease",
	    "2031-02-03T04:05:06.700Z", "lp2kq7K5wMfO1dzj6vH4_wYN", LEASE_BODY,
	    "6305fe39be64823f566700c62962aba0ed78750e198f6a89d60a236b95002fd2",
	    197,
	    "JrYfyJIIzAkExb_GU2-0i2fF9NuXEKQxn77rQPgY-a_U1GqsNm9iNblvEgb9guhN"
	    "bSWV1oclXExa_Qznr4c5Dw" },
	{ "V2", V_SEED, V_CREDENTIAL, "/v1/bridge/workers/lab%3Avm/lease",
	    "2031-02-03T04:05:06.700Z", "lp2kq7K5wMfO1dzj6vH4_wYN", LEASE_BODY,
	    "6305fe39be64823f566700c62962aba0ed78750e198f6a89d60a236b95002fd2",
	    0,
	    "MyuREKjvNSc6fkZwkzWKW9uLu4HT2E6zJLsunM7RCMwbZzQY3tsZps0_5XVlDhtq"
	    "VNmNxwJJHaxKBnrjIZebCA" },
	{ "V3", V_SEED, V_CREDENTIAL,
	    "/v1/bridge/workers/lab-vm-3/assignments/BQwTGiEoLzY9REtSWWBnbnV8"
	    "/settle",
	    "2031-02-03T04:05:08.000Z", "l56lrLO6wcjP1t3k6_L5AAcO",
	    "{\"protocolVersion\":1,\"generation\":41,\"leaseToken\":"
	    "\"TVRbYmlwd36FjJOaoaivtr3Ey9LZ4Ofu9fwDChEYHyY\","
	    "\"incarnationId\":\"yM_W3eTr8vkABw4VHCMqMTg_\",\"status\":"
	    "\"fulfilled\",\"result\":{\"protocolVersion\":1,\"operation\":"
	    "\"execute_command\",\"workspaceId\":\"primary\",\"exitCode\":0,"
	    "\"stdout\":\"\\u001b[32mok\\u001b[0m a/b \\u00e9\\n\","
	    "\"stderr\":\"\",\"truncated\":false,\"timedOut\":false}}",
	    "11c66d969ddb26d4a90530b0f37f8a310ac7402689915eeb7ed289eb57fe4fc7",
	    0,
	    "TSJ5eezDZ_5UPpBsOgNsO-RXAIEyBF8GE6pMtHu-vDqCd2s4py8aH1tzHUMyk5zX"
	    "CTs9CBe88tChQAexcQGLAw" },
	{ "16.2", P_SEED, P_CREDENTIAL, "/v1/bridge/workers/build-box-7/lease",
	    "2026-03-04T05:06:07.089Z", "oKGio6SlpqeoqaqrrK2ur7Cx",
	    "{\"protocolVersion\":1,\"waitMs\":25000,\"incarnationId\":"
	    "\"AAECAwQFBgcICQoLDA0ODxAR\"}",
	    "4c4a45314ec28319f5f533fd1f8dcaf44a10f3e8e5cdf2350b77a228285d1208",
	    192,
	    "uTGNQCa1rkr1-J44QI9N6Fu3IQzblljQ2kTtBJ8t4SN_cgAIVJgDE90AV_laecU0"
	    "ShcIp2gvGSjgwhrRIg61Dg" },
	{ "16.3", P_SEED, P_CREDENTIAL,
	    "/v1/bridge/workers/build-box%3A7/assignments/asg_01/settle",
	    "2026-03-04T05:06:09.000Z", "wMHCw8TFxsfIycrLzM3Oz9DR",
	    "{\"protocolVersion\":1,\"generation\":12,\"leaseToken\":"
	    "\"lt_Zx81Qm\",\"incarnationId\":\"AAECAwQFBgcICQoLDA0ODxAR\","
	    "\"status\":\"fulfilled\",\"result\":{\"protocolVersion\":1,"
	    "\"operation\":\"read_file\",\"workspaceId\":\"primary\","
	    "\"path\":\"caf\xc3\xa9.txt\",\"content\":\"na\xc3\xafve "
	    "\xe6\x97\xa5\xe6\x9c\xac\",\"startLine\":1,\"endLine\":1,"
	    "\"truncated\":false}}",
	    "1b4857ce53d634b6abd17ee049b08382e57c61bc221942228262ceb4f94ed9ca",
	    214,
	    "WdvWpb710dpL_R753zz4V30G1vM6esB8WrOLPDqubT8bs5YHGxgm5xYVdes4tCXA"
	    "f-yVQYauPeL0yOy_GmOKBw" },
	{ "16.4", P_SEED, P_CREDENTIAL,
	    "/v1/bridge/workers/build-box-7/credentials/refresh",
	    "2026-03-04T05:20:00.500Z", "4OHi4-Tl5ufo6err7O3u7_Dx",
	    "{\"protocolVersion\":1}",
	    "f1e39d9b6cd3a60db72c0b80e4679e715bd7e55c1a22762e96234045f46da55c",
	    0,
	    "nb7k0zqLayIm8qnIh96Lyb3hNsLi7tI1wOB-YOTTlyqJa06cjuXV_03JV-CO_oaf"
	    "RAPqN0ja6p6MgszDZZHZDg" },
};

static void
test_vector(size_t i)
{
	uint8_t seed[32], key[32], secret[64];
	char hash[HASH_SIZE], padded[128];
	struct json *v;
	struct buf body, text;

	sodium_hex2bin(
	    seed, sizeof(seed), vectors[i].seed, 64, NULL, NULL, NULL);
	crypto_sign_seed_keypair(key, secret, seed);
	buf_init(&body);
	buf_init(&text);
	v = json_parse(vectors[i].body, strlen(vectors[i].body));
	canon_json(&body, v);
	sha256_hex(hash, body.data, body.len);
	tap_same(
	    hash, vectors[i].hash, "%s: hash of the body", vectors[i].name);
	auth_canonical(&text, "POST", vectors[i].path, vectors[i].timestamp,
	    vectors[i].nonce, hash, vectors[i].credential);
	if (vectors[i].length != 0)
		tap_number((long long)text.len, (long long)vectors[i].length,
		    "%s: length of the canonical string", vectors[i].name);
	tap_ok(auth_verify(&text, vectors[i].signature, key),
	    "%s: the signature verifies", vectors[i].name);
	xsnprintf(padded, sizeof(padded), "%s==", vectors[i].signature);
	tap_ok(auth_verify(&text, padded, key), "%s: so it does with padding",
	    vectors[i].name);
	text.data[0] ^= 1;
	tap_ok(!auth_verify(&text, vectors[i].signature, key),
	    "%s: another text does not", vectors[i].name);
	json_free(v);
	buf_free(&body);
	buf_free(&text);
}

static const struct {
	const char *text;
	int64_t ms;
	int ok;
} times[] = {
	{ "1970-01-01T00:00:00.000Z", 0, 1 },
	{ "2031-02-03T04:05:06.700Z", 1927857906700, 1 },
	{ "2031-02-03T04:05:06Z", 1927857906000, 1 },
	{ "2031-02-03T05:05:06.700+01:00", 1927857906700, 1 },
	{ "2031-02-30T04:05:06.700Z", 0, 0 },
	{ "2031-02-03T24:05:06.700Z", 0, 0 },
	{ "2031-02-03 04:05:06.700Z", 0, 0 },
	{ "yesterday", 0, 0 },
	{ "", 0, 0 },
};

static void
test_times(void)
{
	char text[ISO_TIME_SIZE];
	int64_t ms;
	size_t i;
	int ok;

	for (i = 0; i < N(times); i++) {
		ok = iso_parse(times[i].text, &ms) == 0;
		tap_ok(ok == times[i].ok && (!ok || ms == times[i].ms),
		    "time \"%s\"", times[i].text);
	}
	iso_time(text, 1927857906007);
	tap_same(text, "2031-02-03T04:05:06.007Z", "a time written");
}

static const struct {
	const char *json;
	int ok;
} paths[] = {
	{ "\"a\"", 1 },
	{ "\"./a\"", 1 },
	{ "\"a//b\"", 1 },
	{ "\".\"", 1 },
	{ "\"a/\"", 1 },
	{ "\"C\"", 1 },
	{ "\"ab:c\"", 1 },
	{ "\"..a\"", 1 },
	{ "\"a..\"", 1 },
	{ "\"\"", 0 },
	{ "\"/a\"", 0 },
	{ "\"a/../b\"", 0 },
	{ "\"..\"", 0 },
	{ "\"a\\\\b\"", 0 },
	{ "\"C:x\"", 0 },
	{ "\"a:b\"", 0 },
	{ "\"a\\u0000b\"", 0 },
	{ "\"a\\ud800b\"", 0 },
	{ "7", 0 },
};

static void
test_paths(void)
{
	struct json *v;
	size_t i;

	for (i = 0; i < N(paths); i++) {
		v = json_parse(paths[i].json, strlen(paths[i].json));
		tap_number(
		    path_valid(v), paths[i].ok, "path %s", paths[i].json);
		json_free(v);
	}
	tap_ok(path_compare("src/app.ts", "src/worker.ts") < 0 &&
		path_compare("src/worker.ts", "src.ts") < 0,
	    "order of paths by segment");
	tap_ok(
	    path_compare("src/\xee\x80\x80.ts", "src/\xf0\x90\x80\x80.ts") < 0,
	    "order of paths by UTF-8 bytes");
	tap_ok(path_compare("a", "a/b") < 0 && path_compare("a/b", "a") > 0 &&
		path_compare("a/b", "a/b") == 0,
	    "fewer segments first");
	tap_ok(path_within("src/./a", "src") && path_within("src", "./src/") &&
		!path_within("srcs", "src") && path_within("x", ".") &&
		path_within("x", NULL),
	    "what lies within a path");
}

static void
test_names(void)
{
	char longest[160];

	memset(longest, 'a', sizeof(longest));
	longest[128] = '\0';
	tap_ok(name_is_id("a") && name_is_id("9.:_-Z") && name_is_id(longest),
	    "worker ids");
	longest[128] = 'a';
	longest[129] = '\0';
	tap_ok(!name_is_id("") && !name_is_id(NULL) && !name_is_id("-a") &&
		!name_is_id("a b") && !name_is_id("a/b") &&
		!name_is_id(longest),
	    "no worker ids");
	tap_ok(name_is_incarnation("yM_W3eTr8vkABw4VHCMqMTg_") &&
		name_is_incarnation("0123456789abcdef") &&
		!name_is_incarnation("0123456789abcde") &&
		!name_is_incarnation("0123456789abcde."),
	    "incarnation ids");
}

int
main(void)
{
	size_t i;

	if (sodium_init() == -1)
		return 1;
	test_forms();
	for (i = 0; i < N(vectors); i++)
		test_vector(i);
	test_times();
	test_paths();
	test_names();
	return tap_done();
}
