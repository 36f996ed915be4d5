<?php
/**
 * A client of RQ for PHP from 8.1; one file, no package and no extension is needed.
 *
 *   require "rq_client.php";
 *
 *   $rq = new RQClient();  // of RQ_URL and RQ_TOKEN
 *   $sent = $rq->send("mail", ["param1" => "ann@example.org"], key: "order/4711");
 *   $message = $rq->wait("mail", $sent["msg_id"]);
 *   echo $message["state"];
 *
 * What was sent is on disk when `send` returns. Each message is sent with a key, yours or one
 * of chance, so that it is sent again after a lost answer and is still one message. What may
 * not be done twice is tried again only if RQ has said that nothing was done. Every request
 * has a time-out. Every failure is an `RQError`; no text of one holds the token.
 */

declare(strict_types=1);

/** What was asked was not done; `kind` is one word that programs go by. */
final class RQError extends RuntimeException
{
    /** @param int $status of HTTP; 0: there was no answer */
    public function __construct(
        public readonly string $kind,
        string $text,
        public readonly int $status = 0,
        public readonly float $retryAfter = 0.0,
    ) {
        parent::__construct("$text ($kind)");
    }
}

/** Asks one RQ. */
final class RQClient
{
    private const ENDED = ["done", "relayed", "err", "dismissed"];
    private const GOES_ON = ["runs", "ready", "waits", "unsent"]; // marks of a flow
    // RQ says with these kinds that it has done nothing: whatever was asked may be asked again.
    private const NOT_DONE = [
        "busy", "down", "closed", "no_room", "disk_failed", "cannot_read", "too_often", "unreachable",
    ];
    // With these it is not known: only what may be done twice is asked again.
    private const UNKNOWN = ["outcome_unknown", "internal", "no_answer"];
    private const UNKNOWN_STATUSES = [500, 502, 503, 504]; // of a proxy, say
    private const FIRST_PAUSE = 0.2; // seconds
    private const LONGEST_PAUSE = 10.0;
    private const LINES = 10_000; // of a request with many messages
    private const BYTES = 16 << 20;
    private const BULK_TIMEOUT = 120.0;
    private const WAIT = 30.0; // seconds that one request waits for an end
    private const LOOK = 1.0; // the same, where progress is to be told

    private string $at;
    private string $token;

    /** `url` and `token`: else RQ_URL and RQ_TOKEN; `timeout`: seconds of one attempt. */
    public function __construct(
        ?string $url = null,
        #[SensitiveParameter] ?string $token = null,
        private float $timeout = 10.0,
        private int $attempts = 5,
    ) {
        $this->at = self::parsed($url ?? (getenv("RQ_URL") ?: ""));
        $this->token = self::parsedToken($token ?? (getenv("RQ_TOKEN") ?: ""));
    }

    // ---- sending

    /**
     * Send a message. With the same `key`, for seven days, it is the same message.
     * @param array<string, mixed> $fields
     * @return array{msg_id: string, queue: string, joined: bool}
     */
    public function send(string $queue, array $fields = [], ?string $key = null): array
    {
        $headers = self::typed("application/json", $key ?? self::chance());
        $body = self::json((object) $fields);
        $data = $this->asked("POST", self::at($queue) . "/messages", $body, $headers);
        return self::sent($queue, $data["msg_id"], isset($data["joined"]));
    }

    /**
     * Send many messages; for each, in their order, what became of it. With the same `key` and
     * the same messages they are sent once.
     * @param iterable<array<string, mixed>> $messages
     * @return list<array{msg_id: string, queue: string, joined: bool}|RQError>
     */
    public function sendMany(string $queue, iterable $messages, ?string $key = null): array
    {
        $key ??= self::chance();
        $answers = [];
        $number = 0;
        foreach (self::bodies($messages) as $body) {
            $headers = self::typed("application/x-ndjson", "$key/" . $number++);
            $path = self::at($queue) . "/messages/bulk";
            $timeout = max($this->timeout, self::BULK_TIMEOUT);
            $text = $this->ask("POST", $path, $body, $headers, timeout: $timeout);
            foreach (explode("\n", trim($text)) as $line) {
                $answers[] = self::ofLine($queue, json_decode($line, true));
            }
        }
        return $answers;
    }

    /**
     * Send messages of which some wait for others, by `name` and `after`: all of them or none.
     * With the same `key` it is the same flow. A whole plan, with `messages` and perhaps
     * `post_run_webhook`, will do, too.
     * @param array<mixed> $messages
     * @return array{msg_id: string, queue: string, joined: bool}
     */
    public function sendFlow(array $messages, ?string $name = null, ?string $key = null): array
    {
        $plan = array_is_list($messages) ? ["messages" => $messages] : $messages;
        $body = self::json(($name === null ? [] : ["name" => $name]) + $plan);
        $headers = self::typed("application/json", $key ?? self::chance());
        return self::sent("flow", $this->asked("POST", "flows", $body, $headers)["msg_id"], false);
    }

    // ---- looking

    /**
     * Return a message as it is now.
     * @return array<string, mixed>
     */
    public function message(string $queue, string $msgId): array
    {
        return $this->asked("GET", self::at($queue, $msgId));
    }

    /**
     * Return a message that has ended: its `state` is done, relayed or err. `onProgress` is
     * called with it whenever its `status` has changed. An RQError of the kind `timeout`: it
     * has not ended in time, and goes on.
     * @return array<string, mixed>
     */
    public function wait(
        string $queue,
        string $msgId,
        float $timeout = 600.0,
        ?callable $onProgress = null,
    ): array {
        $deadline = microtime(true) + $timeout;
        $told = null;
        while (true) {
            $left = $deadline - microtime(true);
            $seconds = max(0.0, min($onProgress ? self::LOOK : self::WAIT, $left));
            $path = self::at($queue, $msgId) . sprintf("?wait=%.3F&for=end", $seconds);
            $message = $this->asked("GET", $path, timeout: $this->timeout + $seconds);
            if (in_array($message["state"], self::ENDED, true)) {
                return $message;
            }
            if ($onProgress && $message["status"] !== $told) {
                $told = $message["status"];
                $onProgress($message);
            }
            if ($left <= 0) {
                throw new RQError("timeout", "$queue/$msgId has not ended after $timeout s, it goes on");
            }
        }
    }

    /**
     * Wait for a message, and return what its script said as `result`: JSON is read, other text
     * is text; null: it said nothing. An RQError of the kind `failed`: it ended in err.
     */
    public function result(string $queue, string $msgId, float $timeout = 600.0): mixed
    {
        $message = $this->wait($queue, $msgId, $timeout);
        if (!in_array($message["state"], ["done", "relayed"], true)) {
            throw new RQError("failed", "$queue/$msgId: {$message["story"]["why"]}");
        }
        $said = $message["result"]["result"] ?? null;
        $value = json_decode($said ?? "null", true);
        return json_last_error() === JSON_ERROR_NONE ? $value : $said;
    }

    /** Return what the script of a message has printed. */
    public function log(string $queue, string $msgId): string
    {
        return $this->ask("GET", self::at($queue, $msgId) . "/log");
    }

    /**
     * Return a flow as it is now: its `mark`, and its `nodes` with theirs.
     * @return array<string, mixed>
     */
    public function flow(string $flow): array
    {
        return $this->asked("GET", "flows/" . rawurlencode($flow));
    }

    /**
     * Return a flow of which nothing runs or is ready to: `mark` is `done`, or tells what is
     * not, and `text` why. One that was not begun (`is_begun`), since a queue has refused a
     * message, has the mark `failed`: none of it ran. One that was cancelled is `cancelled`. `onProgress`
     * is called with it whenever its `nodes` have changed. An RQError of the kind `timeout` says
     * how it stands.
     * @return array<string, mixed>
     */
    public function waitFlow(string $flow, float $timeout = 600.0, ?callable $onProgress = null): array
    {
        $deadline = microtime(true) + $timeout;
        $told = null;
        while (true) {
            $left = $deadline - microtime(true);
            $seconds = max(0.0, min($onProgress ? self::LOOK : self::WAIT, $left));
            $path = "flows/" . rawurlencode($flow) . sprintf("?wait=%.3F&for=end", $seconds);
            $view = $this->asked("GET", $path, timeout: $this->timeout + $seconds);
            if (!in_array($view["mark"], self::GOES_ON, true)) {
                return $view;
            }
            if ($onProgress && $view["nodes"] !== $told) {
                $told = $view["nodes"];
                $onProgress($view);
            }
            if ($left <= 0) {
                throw new RQError("timeout", "flow $flow has not ended after $timeout s: {$view["text"]}");
            }
        }
    }

    // ---- changing

    /** End a message that runs: it ends in err; remove one that waits. */
    public function cancel(string $queue, string $msgId): void
    {
        $this->ask("POST", self::at($queue, $msgId) . "/cancel", safe: false);
    }

    /** End what has not ended of a flow. */
    public function cancelFlow(string $flow): void
    {
        $this->ask("POST", "flows/" . rawurlencode($flow) . "/cancel", safe: false);
    }

    // ---- requests

    /** @return array<string, mixed> */
    private function asked(
        string $method,
        string $path,
        string $body = "",
        array $headers = [],
        ?float $timeout = null,
    ): array {
        return json_decode($this->ask($method, $path, $body, $headers, timeout: $timeout), true);
    }

    /** Ask, and ask again while that is safe and may help; return the body. */
    private function ask(
        string $method,
        string $path,
        string $body = "",
        array $headers = [],
        bool $safe = true,
        ?float $timeout = null,
    ): string {
        for ($number = 1; ; $number++) {
            try {
                return $this->once($method, $path, $body, $headers, $timeout ?? $this->timeout);
            } catch (RQError $error) {
                $again = in_array($error->kind, self::NOT_DONE, true)
                    || ($safe && in_array($error->kind, self::UNKNOWN, true));
                if (!$again || $number >= $this->attempts) {
                    throw $error;
                }
                self::pause($number, $error->retryAfter);
            }
        }
    }

    private function once(string $method, string $path, string $body, array $headers, float $timeout): string
    {
        $headers = [...$headers, "Accept: application/json", "Connection: close"];
        if ($this->token !== "") {
            $headers[] = "Authorization: Bearer {$this->token}";
        }
        $options = ["method" => $method, "header" => $headers, "content" => $body];
        // The token is for this address alone: no redirect is followed.
        $options += ["timeout" => $timeout, "ignore_errors" => true, "follow_location" => 0];
        $context = stream_context_create(["http" => $options]);
        error_clear_last();
        $until = microtime(true) + $timeout;
        $answer = @fopen("{$this->at}/api/v1/$path", "rb", false, $context);
        $text = $answer === false ? false : stream_get_contents($answer);
        $lines = $answer === false ? [] : stream_get_meta_data($answer)["wrapper_data"];
        $cut = $answer !== false && stream_get_meta_data($answer)["timed_out"];
        if ($text === false || $cut || !preg_match('~^HTTP/\S+ (\d+)~', $lines[0] ?? "", $status)) {
            throw $this->silence(microtime(true) >= $until);
        }
        $status = (int) $status[1];
        return $status >= 200 && $status < 300 ? $text : throw self::refusal($status, $text, $lines);
    }

    /** Return why there is no answer: what could not connect has sent nothing. */
    private function silence(bool $late): RQError
    {
        $why = preg_replace('~^.*: ~', "", error_get_last()["message"] ?? "it was cut off");
        $unsent = !$late && preg_match('~refused|getaddrinfo|No route|unreachable~', $why);
        $kind = $unsent ? "unreachable" : "no_answer";
        return new RQError($kind, "{$this->at} does not answer: " . ($late ? "not in time" : $why));
    }

    private static function parsed(string $url): string
    {
        if ($url === "") {
            throw new RQError("bad_input", "no address of RQ: say the url, or set RQ_URL");
        }
        $parts = parse_url($url);
        if (!$parts || !in_array($parts["scheme"] ?? "", ["http", "https"], true) || !isset($parts["host"])) {
            throw new RQError("bad_input", "the address of RQ is http://HOST:PORT or https://…");
        }
        if (isset($parts["user"])) {
            throw new RQError("bad_input", "the address of RQ holds a login: use a token");
        }
        return rtrim($url, "/");
    }

    /**
     * Return a token without the end of the line of its file. One that no header can hold is
     * refused: a line in it would be a header of its own.
     */
    private static function parsedToken(#[SensitiveParameter] string $token): string
    {
        $token = trim($token);
        if (preg_match('/[^!-~]/', $token)) {
            $text = "the token holds a blank or control character, or is not ASCII: see RQ_TOKEN";
            throw new RQError("bad_input", $text);
        }
        return $token;
    }

    private static function at(string $queue, ?string $msgId = null): string
    {
        $message = $msgId === null ? "" : "/messages/" . rawurlencode($msgId);
        return "queues/" . rawurlencode($queue) . $message;
    }

    /** @return list<string> */
    private static function typed(string $media, string $key): array
    {
        if (preg_match('~[^ -\~]~', $key)) {
            throw new RQError("bad_input", "a key is 1 to 200 printable characters of ASCII");
        }
        return ["Content-Type: $media", "Idempotency-Key: $key"];
    }

    private static function chance(): string
    {
        return bin2hex(random_bytes(16));
    }

    private static function json(mixed $value): string
    {
        return json_encode($value, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_PRESERVE_ZERO_FRACTION);
    }

    /** @return array{msg_id: string, queue: string, joined: bool} */
    private static function sent(string $queue, string $msgId, bool $joined): array
    {
        return ["msg_id" => $msgId, "queue" => $queue, "joined" => $joined];
    }

    /** Give messages as lines, so many as one request takes. */
    private static function bodies(iterable $messages): iterable
    {
        [$body, $number] = ["", 0];
        foreach ($messages as $message) {
            $line = self::json((object) $message) . "\n";
            if ($number === self::LINES || ($number && strlen($body) + strlen($line) > self::BYTES)) {
                yield $body;
                [$body, $number] = ["", 0];
            }
            $body .= $line;
            $number++;
        }
        if ($number) {
            yield $body;
        }
    }

    private static function ofLine(string $queue, array $answer): array|RQError
    {
        $kind = $answer["kind"] ?? null;
        return $kind === null || $kind === "joined"
            ? self::sent($queue, $answer["msg_id"], $kind !== null)
            : new RQError($kind, "line {$answer["line"]}: {$answer["text"]}");
    }

    private static function refusal(int $status, string $text, array $lines): RQError
    {
        $wait = preg_grep('~^Retry-After: \d+$~i', $lines);
        $retryAfter = $wait ? (float) substr(end($wait), strlen("Retry-After: ")) : 0.0;
        $problem = json_decode($text, true);
        if (isset($problem["kind"], $problem["detail"])) {
            return new RQError($problem["kind"], $problem["detail"], $status, $retryAfter);
        }
        $kind = in_array($status, self::UNKNOWN_STATUSES, true) ? "no_answer" : "refused";
        return new RQError($kind, "the answer is HTTP $status, and not of RQ", $status, $retryAfter);
    }

    private static function pause(int $number, float $retryAfter): void
    {
        $longest = min(self::LONGEST_PAUSE, self::FIRST_PAUSE * 2 ** ($number - 1));
        $seconds = max($longest * random_int(500, 1000) / 1000, min($retryAfter, self::LONGEST_PAUSE));
        usleep((int) ($seconds * 1e6));
    }
}

/**
 * Return the event of a webhook, ["type", "timestamp", "data"], that RQ has signed. An RQError
 * of the kind `bad_signature`: it is not of RQ, or older than `tolerance` seconds, or of the
 * future; `bad_input`: what you said is no secret.
 * @param string|list<string> $secret one or several, or config/webhook.secret, which has one a line
 * @param array<string, string|list<string>> $headers say getallheaders()
 * @param string $body the bytes as they came: file_get_contents("php://input")
 * @return array<string, mixed>
 */
function rq_verify_webhook(
    #[SensitiveParameter] string|array $secret,
    array $headers,
    string $body,
    float $tolerance = 300.0,
    ?float $now = null,
): array {
    $keys = rq_webhook_keys($secret);
    $given = [];
    foreach ($headers as $name => $value) {
        $given[strtolower((string) $name)] = is_array($value) ? implode(" ", $value) : $value;
    }
    $moment = $given["webhook-timestamp"] ?? "";
    $signed = ($given["webhook-id"] ?? "") . ".$moment.$body";
    $valid = false;
    foreach ($keys as $key) {
        $right = "v1," . base64_encode(hash_hmac("sha256", $signed, $key, true));
        foreach (explode(" ", $given["webhook-signature"] ?? "") as $signature) {
            $valid = hash_equals($right, $signature) || $valid;
        }
    }
    if (!$valid) {
        throw new RQError("bad_signature", "this webhook is not signed with our secret");
    }
    $age = ($now ?? microtime(true)) - (float) $moment;
    if (abs($age) > $tolerance) {
        throw new RQError("bad_signature", sprintf("this webhook is %.0f s old", $age));
    }
    return json_decode($body, true, flags: JSON_THROW_ON_ERROR);
}

/**
 * Return the keys in secrets. None is left out: with an empty key anyone could sign.
 * @return list<string>
 */
function rq_webhook_keys(#[SensitiveParameter] string|array $secret): array
{
    $keys = [];
    foreach (explode("\n", implode("\n", (array) $secret)) as $line) {
        $line = trim($line);
        if ($line !== "" && $line[0] !== "#") {
            $keys[] = str_starts_with($line, "whsec_") ? base64_decode(substr($line, 6), true) : "";
        }
    }
    if (!$keys || count(array_filter($keys, fn ($key) => $key !== false && $key !== "")) < count($keys)) {
        $text = "the secret of webhooks is wrong: it is whsec_ and base64, and the lines of";
        throw new RQError("bad_input", "$text config/webhook.secret have it");
    }
    return $keys;
}
