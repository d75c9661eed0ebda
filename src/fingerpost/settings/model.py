"""All settings of Fingerpost in one model. Names and defaults here are the reference.

`load` handles the sources of values, `validation` the error messages. Descriptions are shown to users:
`reference` renders them as documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from fingerpost.records import (
    AccessRole,
    DataLabel,
    Effect,
    Effort,
    OAuthGrant,
    Quota,
    QuotaSubject,
    RetryCondition,
    ServerAuth,
)

# Possible intents of a request: the twelve tool categories, and official data.
IntentName = Literal[
    "files",
    "code",
    "system",
    "web_search",
    "web_page",
    "data",
    "communication",
    "planning",
    "knowledge",
    "media",
    "commerce",
    "time_place",
    "official_data",
]


class Section(BaseModel):
    """A part of the settings. Unknown names are errors, and values are immutable.

    A section that is not written is made with `model_construct`: its defaults need no validator, and building
    one takes a millisecond.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    def __str__(self) -> str:
        return repr(self)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Show only what differs from the defaults."""
        fields = type(self).model_fields
        for name, value in super().__repr_args__():
            if name is None or value != fields[name].get_default(call_default_factory=True):
                yield name, value


class ToolRoutingSettings(Section):
    """The tool decision, from selection to execution."""

    enabled: bool = Field(default=True, description="Offer routed tools to models at all")
    selection_temperature: float = Field(default=0.15, ge=0, le=2, description="For the selecting model")
    review_temperature: float = Field(default=0.3, ge=0, le=2, description="For the reviewing model")
    confidence_threshold: float = Field(default=0.7, ge=0, le=1, description="Below this, a person is asked")
    max_reinjections: int = Field(
        default=3, ge=0, le=20, description="How often a request may be processed again"
    )
    allow_write: bool = Field(
        default=False,
        description="Built-in write tools act; otherwise dry run. "
        "The workspace then writes and overwrites inside its folder without asking",
    )
    allow_execute: bool = Field(default=False, description="Built-in command tools act; otherwise dry run")


class SmartRoutingSettings(Section):
    """Server pre-selection for large catalogs."""

    mode: Literal["auto", "on", "off"] = Field(default="auto", description="auto: on above both thresholds")
    max_tools: int = Field(default=30, ge=0, description="auto needs more tools than this")
    max_servers: int = Field(default=4, ge=0, description="auto needs more servers than this")
    keep_minutes: float = Field(
        default=60.0,
        gt=0,
        description="A model's choice is forgotten after the conversation was idle this long",
    )
    temperature: float = Field(default=0.1, ge=0, le=2, description="For the server-selecting model")
    max_tokens: int = Field(default=300, ge=1, le=100_000, description="For the server-selecting model")
    prompt: str | None = Field(
        default=None,
        description="A file with your own prompt, from the working directory; {servers} stands for the list",
    )


class NarrowSettings(Section):
    """How many tools a request gets, and how they are found."""

    max_tools: int = Field(default=4, ge=1, le=64, description="Most tools offered to a model")
    candidates: int = Field(
        default=20, ge=1, le=200, description="Further tools that are ranked and explained"
    )
    tool_above: float = Field(default=0.6, ge=0, le=1, description="Need score from which a tool is needed")
    none_below: float = Field(default=0.4, ge=0, le=1, description="Need score up to which none is")
    cache_seconds: float = Field(default=30.0, ge=0, description="How long a narrowing is cached")
    cache_entries: int = Field(default=1000, ge=0, description="Cached narrowings")
    threads: int = Field(default=1, ge=1, le=64, description="Processor threads the encoder may use")
    scorer_seconds: float = Field(
        default=1.0, gt=0, le=60, description="How long an added scorer may take for a request"
    )
    vectors: str | None = Field(
        default=None, description="Folder for cached vectors; by default in the cache directory"
    )
    encoder: str = Field(
        default="builtin",
        min_length=1,
        description="What compares meanings: `builtin`, a folder with an ONNX model, or "
        "`openai:<base URL>#<model>` for an embedding endpoint",
    )
    encoder_api_key: str | None = Field(
        default=None, repr=False, description="For the endpoint; better in the environment than here"
    )
    encoder_seconds: float = Field(
        default=2.0,
        gt=0,
        le=60,
        description="How long the endpoint may take for a request; then words decide",
    )
    encoder_query_prefix: str = Field(
        default="", max_length=500, description="Written before a request, as some models want it"
    )
    encoder_tool_prefix: str = Field(
        default="", max_length=500, description="Written before the text of a tool, as some models want it"
    )
    meaning_weight: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Share of meaning in the text score; by default 0.55, less for languages that the "
        "encoder does not know. `fingerpost eval tune` fits it",
    )
    reranker: str | None = Field(
        default=None,
        min_length=1,
        description="Orders tools with close scores: `<base URL>#<model>` of an endpoint with /rerank, or "
        "`lite` for the light model",
    )
    reranker_api_key: str | None = Field(
        default=None, repr=False, description="For the endpoint; better in the environment than here"
    )
    reranker_seconds: float = Field(
        default=1.0, gt=0, le=60, description="How long it may take; then the order stays"
    )


class ChooseSettings(Section):
    """How a request is answered, and when to stop."""

    mode: Literal["auto", "staged", "single", "simple", "react", "keyless"] = Field(
        default="auto", description="auto: staged with a model, keyless without"
    )
    decline_below: float = Field(
        default=0.2, ge=0, le=1, description="Confidence below which a call is dropped without asking"
    )
    max_turns: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Rounds of tools an agent may have; by default 8 in react and "
        "tool_routing.max_reinjections in simple",
    )
    max_seconds: float = Field(default=300.0, gt=0, le=86_400, description="For a whole request")
    max_tokens: int = Field(default=200_000, ge=100, description="Of all model calls of a request together")
    max_cost: float | None = Field(default=None, gt=0, description="Of a request, in your models' currency")
    answer_tokens: int = Field(default=1500, ge=16, le=100_000, description="Longest answer")
    answer_temperature: float | None = Field(default=None, ge=0, le=2, description="By default the model's")
    persona: str | None = Field(default=None, description="Who the assistant is, first in every prompt")
    directives: str | None = Field(
        default=None, description="What the client can do with the answer; last in every prompt"
    )


class ModelSettings(Section):
    """One language model behind an OpenAI-compatible address."""

    model: str = Field(min_length=1, description="Its name at the server")
    base_url: str | None = Field(
        default=None, description="Where it is served, such as http://127.0.0.1:8080/v1"
    )
    api_key: str | None = Field(default=None, repr=False, description="Prefer an environment variable")
    timeout: float = Field(default=60.0, gt=0, le=3600, description="Seconds for one reply")
    provider: Literal["openai", "anthropic", "google"] = Field(
        default="openai", description="Which API the address has"
    )
    retries: int = Field(default=2, ge=0, le=10, description="Repeats when it is overloaded or fails")
    context: int = Field(default=32_768, ge=512, description="Tokens it can read at once")
    tool_format: Literal["auto", "text"] = Field(
        default="auto",
        description="`auto`: tools as definitions where the model takes them; `text`: always described in "
        "the last message, so that prompt caches keep what comes before",
    )
    price_in: float | None = Field(default=None, ge=0, description="Of a million tokens it reads")
    price_out: float | None = Field(default=None, ge=0, description="Of a million tokens it writes")


class ModelsSettings(Section):
    """The models in use, each standing in for the other. Without any, Fingerpost routes by itself."""

    lite: ModelSettings | None = Field(default=None, description="The small model: selects servers and tools")
    prime: ModelSettings | None = Field(default=None, description="The strong model: reviews and answers")


class StoreSettings(Section):
    """Where decisions, approvals and statistics are kept."""

    url: str | None = Field(
        default=None,
        repr=False,
        description="sqlite:///file or postgresql://…; by default a file in the data directory",
    )
    secret: str | None = Field(
        default=None,
        repr=False,
        min_length=32,
        description="The secret (32 characters or more) that encrypts sign-in tokens and approval states, "
        "the same on every host; better in the environment than here",
    )
    secret_file: str | None = Field(
        default=None,
        description="File of that secret, if `secret` is not set; by default beside an SQLite file, and in a "
        "PostgreSQL database",
    )
    flush_ms: float = Field(
        default=100.0, ge=0, le=1000, description="How long writes wait to be flushed together"
    )
    lease_seconds: float = Field(
        default=30.0,
        ge=1,
        le=3600,
        description="Seconds without a heartbeat after which another process counts as ended and its "
        "requests as interrupted",
    )
    keep_days: float = Field(
        default=30.0,
        ge=0,
        le=36_500,
        description="Days after which requests, calls and decided approvals are removed; 0: never",
    )
    max_bytes: int = Field(
        default=10 * 1024**3,
        ge=0,
        description="Size from which the oldest requests and calls are removed earlier; 0: any size",
    )


class LimitSettings(Section):
    """Bounds on what one server may send us."""

    connect_timeout: float = Field(default=30.0, gt=0, le=600, description="Seconds to connect and list")
    list_pages: int = Field(default=200, ge=1, description="Pages of one tool list")
    relist_seconds: float = Field(
        default=30.0,
        ge=0,
        le=86_400,
        description="Age at which a tool list without change notifications is read again, s",
    )
    tools_per_server: int = Field(default=20_000, ge=1, description="Tools of one server")
    definition_bytes: int = Field(default=256 * 1024, ge=1024, description="Size of one tool definition")
    schema_depth: int = Field(default=64, ge=4, le=100, description="Nesting of one tool definition")
    response_bytes: int = Field(
        default=8 * 1024 * 1024, ge=1024, description="Size of one reply; a larger one is refused"
    )
    questions_per_call: int = Field(
        default=32, ge=0, le=1000, description="Questions of a server to the caller in one call"
    )
    notices_per_call: int = Field(
        default=10_000, ge=1, description="Notifications and pings of a server in one call"
    )
    notice_bytes: int = Field(
        default=4 * 1024 * 1024, ge=1024, description="Size of all questions and notifications of one call"
    )
    stderr_bytes: int = Field(default=64 * 1024, ge=0, description="Kept of a server's stderr")
    reconnect_max: float = Field(
        default=60.0, gt=0, le=3600, description="Longest wait between reconnects, s"
    )


class LifecycleSettings(Section):
    """When servers run. What a server lists is kept, so that it need not run to be known."""

    default: Literal["on_demand", "at_start", "always"] = Field(
        default="on_demand",
        description="on_demand: from the first call until idle; at_start: from the start until idle; "
        "always: from the start, never stopped",
    )
    idle_seconds: float = Field(
        default=300.0,
        ge=0,
        le=86_400 * 7,
        description="A program is stopped after this long without calls, s, and so is the encoder of a "
        "gateway; 0: never",
    )
    relist_days: float = Field(
        default=7.0, ge=0, description="Age at which a kept list is read again in the background, days"
    )
    use_gateway: bool = Field(
        default=True,
        description="Commands use the servers that a running gateway of the same store has connected",
    )


class RuleSettings(Section):
    """One rule of the policy. All conditions given must hold; the first rule that fits decides."""

    verdict: Literal["allow", "ask", "deny"] = Field(description="What to do with a matching call")
    server: str | None = Field(default=None, description="Server name, `*` allowed")
    tool: str | None = Field(default=None, description="Tool key `server/tool` or bare name, `*` allowed")
    operation: str | None = Field(default=None, description="Operation of a consolidated tool, `*` allowed")
    effect: Effect | None = Field(default=None, description="read, write or destroy")
    caller: str | None = Field(default=None, description="Name of the caller, `*` allowed")
    profile: str | None = Field(default=None, description="Profile of the caller, `*` allowed")
    arguments: dict[str, str] = Field(
        default_factory=dict, description="Argument name to pattern, `*` allowed; all must fit"
    )
    paths: Literal["inside", "outside"] | None = Field(
        default=None, description="All path arguments are inside the working directory, or one is outside"
    )
    reason: str | None = Field(default=None, description="Shown to the model and the person")


class FileRule(RuleSettings):
    """A rule that was loaded. Reasons name the file, the variable or the argument it stands in."""

    source: str = Field(exclude=True)


class ProgramRule(RuleSettings):
    """A rule given by a program, not by a file. Reasons name it as such."""


class OwnRule(RuleSettings):
    """A rule of a built-in server. It comes after all written rules."""


class ProfileRule(RuleSettings):
    """A rule of a profile. It comes before all others and applies only to that profile."""


class CallSettings(Section):
    """How calls are run."""

    timeout: float = Field(default=60.0, gt=0, le=3600, description="Seconds, where a tool has none")
    retries: int = Field(
        default=2,
        ge=0,
        le=10,
        description="Repeats of a failed call, where safe; `retries` in [[tools]] for one tool",
    )
    concurrency: int = Field(default=8, ge=1, le=1000, description="Calls at once to one server")
    breaker_failures: int = Field(default=5, ge=1, description="Failures in a row that open a breaker")
    breaker_rate: float = Field(default=0.5, gt=0, le=1, description="Share of failures that opens it")
    breaker_window: int = Field(default=20, ge=2, description="Calls over which the share is taken")
    breaker_seconds: float = Field(default=30.0, gt=0, description="How long it stays open before a trial")
    cache_entries: int = Field(
        default=500, ge=0, description="Results kept for tools with `cache_seconds` in [[tools]]"
    )
    repeat_limit: int = Field(default=3, ge=2, description="Same call with the same result, before a loop")
    grant_seconds: float = Field(default=300.0, gt=0, description="How long a grant holds")
    pending_seconds: float = Field(default=3600.0, gt=0, description="How long a call waits for a person")
    local_addresses: Literal["ask", "allow", "deny"] = Field(
        default="ask",
        description="Calls with a local or link-local address in their arguments; rules can allow them",
    )
    data_flow: Literal["off", "default", "autonomous", "strict"] = Field(
        default="default", description="What a call may do once untrusted or private data was read"
    )
    idempotency_seconds: float = Field(
        default=86_400.0, gt=0, description="How long an idempotency key is remembered"
    )


class DigestSettings(Section):
    """How results are cut to what fits."""

    max_tokens: int = Field(default=4000, ge=50, description="Longest result")
    context_share: float = Field(
        default=0.25, gt=0, le=1, description="Largest share of the remaining context for one result"
    )
    keep_seconds: float = Field(default=86_400, gt=0, description="How long the full result can be fetched")
    summary_tokens: int = Field(
        default=1000, ge=50, description="Results of tools with needs_summary are summarised to this"
    )


class FlagSettings(Section):
    """Every new behaviour can be switched off."""

    pins: bool = Field(default=True, description="Hide a tool whose definition changed until it is accepted")
    scan_definitions: bool = Field(
        default=True,
        description="Scan definitions for poison; with `pins`, hide suspicious tools until they are accepted",
    )
    review_new: bool = Field(
        default=False, description="Tools of a new server, or of one whose entry changed, wait for review"
    )
    inferred_intelligence: bool = Field(default=True, description="Infer category, priority and signals")
    learned_intelligence: bool = Field(default=True, description="Learn latency and size from recorded use")
    audit: bool = Field(default=True, description="Keep the hash-chained audit trail")
    argument_repair: bool = Field(default=True, description="Correct wrong arguments where it is certain")
    fallback: bool = Field(default=True, description="Try the next tool in line when one fails")
    result_cache: bool = Field(default=True, description="Answer a repeated read from the cache")
    loop_guard: bool = Field(default=True, description="Stop repeated calls with the same result")
    digest: bool = Field(default=True, description="Cut long results to what fits")
    result_summaries: bool = Field(default=True, description="Summarise results of tools with needs_summary")
    need_gate: bool = Field(default=True, description="Offer no tools for a request that needs none")
    dense_scores: bool = Field(default=True, description="Compare meanings, not only words")
    intent_signals: bool = Field(default=True, description="Use categories, mentions and urgency for ranking")
    split_needs: bool = Field(default=True, description="Look for tools for each part of a request")
    producers: bool = Field(default=True, description="Offer the tool that finds what a chosen one needs")
    learned_use: bool = Field(default=True, description="Rank tools higher that worked for similar requests")
    narrow_cache: bool = Field(default=True, description="Answer a repeated narrowing from the cache")
    review: bool = Field(default=True, description="The prime model reviews each selection")
    widen: bool = Field(default=True, description="Consider more tools once before asking a person")
    calibration: bool = Field(default=True, description="Fit confidence on recorded outcomes")
    chains: bool = Field(default=True, description="Use another tool if the first is not enough")
    syntax_guard: bool = Field(default=True, description="Remove tool-call markup from answers")
    summarise: bool = Field(default=True, description="Shorten a conversation that no longer fits")
    adaptive_instructions: bool = Field(default=False, description="Adapt instructions to recorded use")
    learn_from_feedback: bool = Field(default=False, description="Use feedback of people for ranking")
    decision_cache: bool = Field(
        default=False, description="Reuse the servers that were right for the same request"
    )
    preferences: bool = Field(
        default=False, description="Use a person's habits to decide between equal tools"
    )
    adaptive_thresholds: bool = Field(
        default=False, description="Adapt thresholds (of confidence and of smart routing) to measured results"
    )


class LearningSettings(Section):
    """How much what was learned counts, and for how long. The flags switch it on."""

    half_life_days: float = Field(
        default=90.0, gt=0, le=3650, description="Days after which feedback counts half"
    )
    shared: bool = Field(
        default=True, description="Corrections apply to all callers; false: only to the person who made them"
    )
    decision_days: float = Field(default=7.0, gt=0, le=365, description="How long decisions are remembered")
    threshold_reach: float = Field(
        default=0.1, ge=0, le=0.2, description="How far a threshold may move from its setting, up or down"
    )
    threshold_samples: int = Field(default=50, ge=20, description="Outcomes needed to move one")
    threshold_right: float = Field(
        default=0.9, ge=0.5, le=1, description="Share of calls above the threshold that must be right"
    )


class ToolOverride(Section):
    """What a person knows better about the tools whose key matches `match` (`server/tool`, `*` allowed)."""

    match: str = Field(min_length=1, description="Key pattern, such as 'github/*'")
    enabled: bool | None = Field(default=None, description="false hides the tool")
    description: str | None = Field(default=None, description="Shown instead of the server's own")
    effect: Effect | None = Field(default=None, description="What running it does: read, write or destroy")
    operations: dict[str, Effect] | None = Field(
        default=None, description="The same by operation, for a tool with an `operation` parameter"
    )
    labels: dict[DataLabel, bool] | None = Field(
        default=None,
        description="Whether its results are `untrusted`, it reads `private` data, it is `outbound`",
    )
    cache_seconds: float | None = Field(
        default=None, ge=0, description="How long a repeated read may be answered from the cache; 0: never"
    )
    retries: int | None = Field(default=None, ge=0, le=10, description="Repeats of a failed call, where safe")
    retry_on: tuple[RetryCondition, ...] | None = Field(
        default=None, description="Failures to repeat after: unavailable (default), timeout, execution_failed"
    )
    repeatable: bool | None = Field(
        default=None,
        description="true: a write may be repeated, because running it twice has the same effect",
    )
    category: str | None = Field(default=None, description="The group it is shown and ranked with")
    priority: int | None = Field(default=None, ge=0, le=100, description="Higher is offered earlier")
    hierarchy: tuple[str, ...] | None = Field(default=None, description="Tools to fall back to, in order")
    conflicts: tuple[str, ...] | None = Field(default=None, description="Tools not to be offered with it")
    typical_ms: int | None = Field(default=None, ge=0, description="How long it usually takes")
    timeout_ms: int | None = Field(default=None, gt=0, description="When to give up on it")
    feedback_delay_ms: int | None = Field(default=None, ge=0, description="When to show progress")
    typical_tokens: int | None = Field(default=None, ge=0, description="How long its replies usually are")
    max_tokens: int | None = Field(default=None, gt=0, description="Where its replies are cut")
    structured: bool | None = Field(default=None, description="Its replies are data, cut as JSON")
    needs_summary: bool | None = Field(
        default=None, description="Its long replies are summarised, by a model where there is one"
    )
    keywords: tuple[str, ...] | None = Field(default=None, description="Words of a request that suit it")
    weight: float | None = Field(default=None, ge=0, description="How much those words count")
    exclusive_intent: IntentName | None = Field(
        default=None,
        description="For a request with this intent (or with one of `keywords`) only it is offered",
    )
    purpose: str | None = Field(default=None, description="What it is for, in the instructions to a model")
    when: tuple[str, ...] | None = Field(default=None, description="When to use it, in the instructions")
    when_not: tuple[str, ...] | None = Field(
        default=None, description="When not to use it, in the instructions"
    )
    examples: tuple[str, ...] | None = Field(default=None, description="Requests it is right for")


ExtensionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*:[^\s:]+$")]


class ExtensionSettings(Section):
    """Code of installed packages, each named `package:name`. Nothing else of them is loaded."""

    scorers: tuple[ExtensionName, ...] = Field(
        default=(), description="Scorers: they add to the scores of tools"
    )
    rules: tuple[ExtensionName, ...] = Field(
        default=(), description="Rules: they judge every call; one that cannot be loaded prevents the start"
    )
    servers: tuple[ExtensionName, ...] = Field(
        default=(), description="Servers whose tools are added to the catalog"
    )


class RolloutSettings(Section):
    """A changed setting for a share of conversations; both arms are in the figures."""

    name: str = Field(min_length=1, description="Its name in the figures")
    setting: str = Field(min_length=1, description="The setting that changes, such as flags.review")
    value: bool | int | float | str = Field(description="Its value for those conversations")
    share: float = Field(ge=0, le=1, description="Of conversations: 0.2 is one in five")


class QuotaSettings(Section):
    """Limits for each user, key or profile with a matching name. Of each kind, the first match counts."""

    of: QuotaSubject = Field(default="user", description="What is counted together: user, key or profile")
    match: str = Field(default="*", min_length=1, description="Names, `*` allowed")
    requests_per_minute: int | None = Field(
        default=None, ge=1, description="MCP requests, chat completions and questions"
    )
    calls_per_minute: int | None = Field(default=None, ge=1, description="Calls of tools")
    running: int | None = Field(default=None, ge=1, description="Calls and requests at once")
    tokens_per_day: int | None = Field(default=None, ge=1, description="Of language models")
    cost_per_day: float | None = Field(default=None, gt=0, description="In your models' currency")

    def to_record(self) -> Quota:
        return Quota(**self.model_dump())


class OAuthSettings(Section):
    """How to sign in to one server."""

    client_id: str | None = Field(default=None, description="When the server does not register clients")
    client_secret: str | None = Field(default=None, repr=False, description="Better as ${VARIABLE}")
    scopes: tuple[str, ...] = Field(default=(), description="What to ask for")
    redirect_port: int = Field(default=0, ge=0, le=65535, description="0: any free port")
    grant: OAuthGrant = Field(
        default="authorization_code",
        description="client_credentials: sign in as the client itself, without a person; needs client_id, "
        "client_secret and issuer",
    )
    issuer: str | None = Field(
        default=None,
        description="The authorization server that knows the client; its secret is sent nowhere else",
    )
    token_endpoint: str | None = Field(
        default=None, description="Where tokens are exchanged; by default from the metadata of issuer"
    )
    audience: str | None = Field(
        default=None, description="What exchanged tokens are for; by default the url of the server"
    )


class ServerSettings(Section):
    """One tool server. Give `command` for a program, `url` for an address."""

    transport: Literal["stdio", "http", "sse"] | None = Field(
        default=None,
        description="By default stdio for a command, http for a url, sse for a url ending in /sse",
    )
    command: str | None = Field(default=None, description="The program, without a shell; ~ is your home")
    args: tuple[str, ...] = Field(default=(), repr=False, description="Its arguments")
    env: dict[str, str] = Field(default_factory=dict, repr=False, description="Variables for the program")
    env_file: str | None = Field(default=None, description="A .env file with more; env wins")
    cwd: str | None = Field(default=None, description="Where it runs; relative to the file it is written in")
    url: str | None = Field(default=None, repr=False, description="The address, http:// or https://")
    headers: dict[str, str] = Field(default_factory=dict, repr=False, description="Sent with every request")
    oauth: OAuthSettings | None = Field(default=None, description="How to sign in, when the server asks")
    auth: ServerAuth = Field(
        default="shared",
        description="Whose sign-in it gets: one for all callers, that of each caller (`per_user`), a token "
        "that the caller's own is exchanged for (`exchange`), or none",
    )
    era: Literal["auto", "2025-11-25", "2026-07-28"] = Field(
        default="auto", description="Which protocol version to use"
    )
    enabled: bool = Field(default=True, description="false keeps the entry without connecting")
    connect_timeout: float | None = Field(
        default=None,
        gt=0,
        le=600,
        description="Seconds to connect and list; by default limits.connect_timeout",
    )
    prefix: bool = Field(default=True, description="false: its tools keep their own names in the gateway")
    isolate: bool = Field(default=False, description="One connection for each caller, not one for all")
    forward_authorization: bool = Field(
        default=False, description="Forward the caller's own token; only for a server that you operate"
    )
    trust_hints: bool = Field(
        default=False, description="Trust its readOnlyHint: such tools run without approval"
    )
    new_tools: Literal["review", "allow"] = Field(
        default="review", description="Whether tools it adds later wait for `fingerpost pins accept`"
    )
    review_new: bool | None = Field(
        default=None,
        description="Its tools wait for `fingerpost pins accept` also when it is new or its entry changed; "
        "by default flags.review_new",
    )
    lifecycle: Literal["on_demand", "at_start", "always"] | None = Field(
        default=None,
        description="When it runs: from its first call, or from the start; by default lifecycle.default",
    )
    idle_seconds: float | None = Field(
        default=None,
        ge=0,
        le=86_400 * 7,
        description="A program is stopped after this long without calls, s; 0: never; by default "
        "lifecycle.idle_seconds",
    )
    keep_running: bool = Field(
        default=False, description="It has state between calls (a browser, a shell): never stop it when idle"
    )
    allow_link_local: bool = Field(
        default=False, description="Its address may be link-local (169.254.0.0/16) or a metadata service"
    )


class ClaimedRoles(Section):
    """Which roles people have, by a claim of their tokens."""

    roles_claim: str | None = Field(
        default=None,
        min_length=1,
        description="Claim with groups or roles of a person, such as `groups` or `realm_access.roles`",
    )
    roles: dict[str, AccessRole] = Field(
        default_factory=dict,
        description="Value of that claim to role: user, approver, operator or admin; all that occur count",
    )
    default_roles: tuple[AccessRole, ...] = Field(
        default=(AccessRole.USER,),
        description="Roles of people without any of those values; empty: they are refused",
    )


class IssuerSettings(ClaimedRoles):
    """Who signs tokens, and how."""

    issuer: str = Field(
        min_length=1, description="The authorization server; its keys are found by its metadata"
    )
    jwks_url: str | None = Field(default=None, description="Where its keys are; by default from its metadata")
    algorithms: tuple[str, ...] = Field(default=("RS256", "ES256"), description="Signatures taken")


class SignInSettings(IssuerSettings):
    """Whose signed tokens (JWT) the gateway takes, as an OAuth 2.1 resource server."""

    audience: str = Field(min_length=1, description="What a token must be for: this gateway's own address")
    scopes: tuple[str, ...] = Field(default=(), description="Scopes a token must have")


class OidcSettings(IssuerSettings):
    """Single sign-on to the console at an OpenID provider. Its client leads back to `public_url` and `/`."""

    client_id: str = Field(min_length=1, description="Of the console, at the provider")
    client_secret: str | None = Field(
        default=None, repr=False, description="Better as ${VARIABLE}; none for a public client"
    )
    scopes: tuple[str, ...] = Field(
        default=("openid", "profile", "email"), description="What to ask for, beside openid"
    )
    session_hours: float = Field(
        default=8.0,
        gt=0,
        le=24 * 30,
        description="Hours until signing on again, when the provider is asked for roles; at most "
        "console.session_hours",
    )


class GatewaySettings(Section):
    """The MCP gateway: one address for all servers."""

    host: str = Field(
        default="127.0.0.1", min_length=1, description="Address to listen at; other machines need keys"
    )
    port: int = Field(default=8642, ge=0, le=65535, description="0: any free port")
    workers: int = Field(default=1, ge=1, le=256, description="Processes that share the port (`serve`)")
    mode: Literal["auto", "route", "all"] = Field(
        default="auto", description="What /mcp offers; auto: route above smart_routing's thresholds"
    )
    pinned: tuple[str, ...] = Field(
        default=(), description="Tools that route lists directly: keys, `*` allowed"
    )
    find_tokens: int = Field(default=1500, ge=200, le=100_000, description="Longest answer of find_tools")
    page_size: int = Field(default=1000, ge=1, le=100_000, description="Tools on one page of a list")
    instructions: str | None = Field(default=None, description="Added to the instructions for clients, first")
    max_sessions: int = Field(default=10_000, ge=1, description="Sessions at once (2025-11-25)")
    session_seconds: float = Field(default=1800.0, gt=0, description="Idle time after which a session ends")
    body_bytes: int = Field(default=4 * 1024 * 1024, ge=1024, description="Size of one request")
    request_seconds: float = Field(default=30.0, gt=0, description="Time for a client to send one request")
    allowed_hosts: tuple[str, ...] = Field(
        default=(), description="Further accepted Host names; loopback and `host` always are"
    )
    allowed_origins: tuple[str, ...] = Field(default=(), description="Web pages that may call it")
    public_url: str | None = Field(default=None, description="How others reach it, when behind a proxy")
    require_key: bool = Field(default=False, description="Require a key on this machine, too")
    local_confirm: bool = Field(
        default=False, description="Treat answers of local HTTP clients without a key as a person's decision"
    )
    approval_seconds: float = Field(
        default=120.0, gt=0, le=3600, description="How long a call waits for the person it asked"
    )
    sign_in: SignInSettings | None = Field(default=None, description="Also accept tokens of this issuer")


class CompletionsSettings(Section):
    """The OpenAI-compatible endpoint, at /v1."""

    enabled: bool = Field(default=True, description="Serve /v1 at all")
    mode: Literal["auto", "staged", "single", "simple", "react", "keyless"] = Field(
        default="auto", description="How requests are answered; auto: simple, keyless without a model"
    )
    approval_seconds: float = Field(
        default=60.0,
        ge=0,
        le=3600,
        description="How long a request waits for a decision; then its answer says where to decide",
    )
    extension: bool = Field(
        default=True, description="Add a field `fingerpost` to answers: tools considered, used, tokens saved"
    )


class ApiSettings(Section):
    """The API at /api, and what bounds all callers of the port."""

    enabled: bool = Field(default=True, description="Serve /api at all")
    per_minute: int = Field(default=1200, ge=1, description="Requests to /api and /v1 by one caller")
    streams: int = Field(default=100, ge=1, description="Live streams at once")


class ConsoleSettings(Section):
    """The web console."""

    enabled: bool = Field(default=True, description="Serve the console at /")
    session_hours: float = Field(default=12.0, gt=0, le=24 * 30, description="Hours until signing in again")
    oidc: OidcSettings | None = Field(default=None, description="Single sign-on at this OpenID provider")


OwnServerName = Literal["workspace", "knowledge", "memory", "collaboration", "specialists", "directives"]


class WorkspaceSettings(Section):
    """Our own server for files and commands. tool_routing.allow_write and allow_execute switch it on."""

    root: str | None = Field(
        default=None, description="Its folder; by default the working directory. Not / or the home directory"
    )
    commands: tuple[str, ...] = Field(
        default=(),
        description="The only commands that may run, without approval; empty: any, each with approval",
    )
    commands_after_writes: tuple[str, ...] = Field(
        default=(),
        description="Commands that may run files of the folder without approval after a caller wrote there",
    )
    sandbox: Literal["auto", "required", "off"] = Field(
        default="auto", description="For commands: where the system has one, always, or never"
    )
    sandbox_network: bool = Field(default=False, description="Commands in the sandbox have the network")
    sandbox_read: tuple[str, ...] = Field(
        default=(), description="What they may read beside the system and the folder, such as ~/data"
    )
    sandbox_write: tuple[str, ...] = Field(
        default=(), description="What they may write beside the folder, such as ~/.cache"
    )
    command_seconds: float = Field(default=120.0, gt=0, le=3600, description="For one command")
    background: int = Field(default=8, ge=0, le=100, description="Commands in the background at once")
    background_seconds: float = Field(default=3600.0, gt=0, le=604_800, description="For one of those")
    output_bytes: int = Field(default=1024 * 1024, ge=1024, description="Kept of a command's output")
    read_bytes: int = Field(default=2 * 1024 * 1024, ge=1024, description="Largest read")
    write_bytes: int = Field(default=16 * 1024 * 1024, ge=1024, description="Largest write")
    ignored: tuple[str, ...] = Field(
        default=(".git", ".hg", ".svn", "node_modules", ".venv", "__pycache__", ".tox", ".mypy_cache"),
        description="Folders that lists and searches skip",
    )
    protected: tuple[str, ...] = Field(
        default=(
            ".git",
            ".hg",
            ".svn",
            ".env",
            "fingerpost.toml",
            "mcp.json",
            ".mcp.json",
            "/profiles/*.toml",
        ),
        description="Read-only files: names, `*` allowed; with a leading / relative to the root",
    )
    outside: bool = Field(
        default=False,
        description="Files outside can be used, each call only with a person's approval of that very call",
    )
    sensitive: tuple[str, ...] = Field(
        default=(
            ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".pgpass", ".git-credentials",
            ".password-store", "keyrings", ".env", ".env.*", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*",
            "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "shadow*", "gshadow*", "sudoers*", "/proc", "/sys",
            "/dev", "/run",
        ),
        description="Names outside that cannot be approved; with a leading / seen from the top of the disk",
    )  # fmt: skip


class KnowledgeSettings(Section):
    """Our own knowledge base: a folder of Markdown, text and PDF, made searchable."""

    folder: str | None = Field(
        default=None, description="Its folder; by default notes/ in the working directory"
    )
    file_bytes: int = Field(default=20 * 1024 * 1024, ge=1024, description="Larger files are not read")
    watch_seconds: float = Field(
        default=2.0, gt=0, le=3600, description="How often changed files are looked for"
    )


class MemorySettings(Section):
    """Our own memory for models, by person and conversation."""

    most: int = Field(default=5000, ge=1, description="Memories per person; the oldest are removed first")
    text_bytes: int = Field(default=8 * 1024, ge=64, description="Size of one")


class SubagentSettings(Section):
    """What a request that another one began may cost; its parent's limits hold as well."""

    max_depth: int = Field(default=2, ge=1, le=5, description="How deep they may be nested")
    at_once: int = Field(default=4, ge=1, le=32, description="Of one request")
    max_turns: int = Field(default=6, ge=1, le=100, description="Rounds of tools")
    max_tokens: int = Field(default=50_000, ge=100, description="Of all its model calls together")
    max_seconds: float = Field(default=120.0, gt=0, le=3600, description="For a whole one")


class AssetEndpointSettings(Section):
    """An OpenAI-compatible service that makes pictures or speech."""

    base_url: str = Field(min_length=1, description="Where it is served, such as http://127.0.0.1:8080/v1")
    model: str | None = Field(default=None, description="Its name at the server")
    api_key: str | None = Field(default=None, repr=False, description="Prefer an environment variable")
    timeout: float = Field(default=120.0, gt=0, le=3600, description="Seconds for one")


class SpecialistsSettings(Section):
    """Our own specialists."""

    most_experts: int = Field(default=5, ge=1, le=12, description="Views one orchestration may ask for")
    images: AssetEndpointSettings | None = Field(default=None, description="Who makes pictures")
    speech: AssetEndpointSettings | None = Field(default=None, description="A service for speech")


class BuiltinSettings(Section):
    """Fingerpost's own servers."""

    enabled: tuple[OwnServerName, ...] = Field(default=(), description="Which are offered")
    workspace: WorkspaceSettings = Field(default_factory=WorkspaceSettings.model_construct)
    knowledge: KnowledgeSettings = Field(default_factory=KnowledgeSettings.model_construct)
    memory: MemorySettings = Field(default_factory=MemorySettings.model_construct)
    subagents: SubagentSettings = Field(default_factory=SubagentSettings.model_construct)
    specialists: SpecialistsSettings = Field(default_factory=SpecialistsSettings.model_construct)


class DiscordSettings(Section):
    """The Discord connector. Needs the extra `discord`."""

    token: str | None = Field(
        default=None, repr=False, description="Token of your bot; prefer an environment variable"
    )
    api_url: str | None = Field(default=None, description="Address of the Discord API, if it is another")
    servers: tuple[str, ...] = Field(default=(), description="Ids of servers it answers on; empty: all")
    users: tuple[str, ...] = Field(default=(), description="Ids of users it answers; empty: all users")
    roles: tuple[str, ...] = Field(default=(), description="Ids of roles it answers, beside those users")
    approvers: tuple[str, ...] = Field(
        default=(), description="Ids of users and roles who may approve what others asked for"
    )
    own_approvals: bool = Field(
        default=True,
        description="In private, let people named by id in users or approvers approve their own calls",
    )
    profile: str | None = Field(default=None, description="The profile its requests use")
    requests_per_minute: int = Field(default=10, ge=1, description="Of one person")
    max_waiting: int = Field(default=5, ge=1, le=100, description="Requests that wait in one conversation")
    max_file_bytes: int = Field(
        default=4 * 1024 * 1024, ge=1, le=16 * 1024 * 1024, description="Of one attached file"
    )


class AuditSettings(Section):
    """How long the audit trail is kept, and where it is anchored beside its own file."""

    anchors: tuple[str, ...] = Field(
        default=(),
        description="/a/file, syslog://host:514, syslog+tcp://…, syslog+unix:///dev/log, https://…",
    )
    anchor_seconds: float = Field(
        default=60.0, ge=1, le=86_400, description="How often the newest row is sent to them, s"
    )
    keep_days: float = Field(
        default=365.0, ge=0, le=36_500, description="Days after which audit rows are removed; 0: never"
    )


class TelemetrySettings(Section):
    """Metrics and traces for monitoring."""

    metrics: bool = Field(default=True, description="Serve /metrics for Prometheus")
    otlp_endpoint: str | None = Field(
        default=None, description="Where OpenTelemetry spans go; needs the extra `otel`"
    )
    service_name: str = Field(default="fingerpost", min_length=1, description="Name of this service in spans")
    content: bool = Field(default=False, description="Put requests, arguments and results into spans")


class ProfileSettings(Section):
    """A persona, a choice of tools, and instructions and rules of its own; also at /mcp/p/<name>."""

    description: str | None = Field(default=None, description="What it is for")
    persona: str | None = Field(default=None, description="Who the assistant is, first in every prompt")
    mode: Literal["auto", "route", "all"] = Field(default="all", description="How its tools are offered")
    servers: tuple[str, ...] = Field(default=(), description="Only these servers, `*` allowed; empty: all")
    tools: tuple[str, ...] = Field(default=(), description="Only these keys, `*` allowed; empty: all")
    effects: tuple[Effect, ...] = Field(default=(), description="Only tools with these effects; empty: all")
    agent_tools: tuple[str, ...] = Field(
        default=(),
        description="Keys that use_mcp_agent may use under it, `*` allowed; empty: what the profile offers",
    )
    pinned: tuple[str, ...] = Field(default=(), description="Tools that route lists directly")
    max_tools: int | None = Field(
        default=None, ge=1, le=64, description="Most tools offered to a model; by default narrow.max_tools"
    )
    effort: Effort | None = Field(
        default=None, description="quick: fast tools, one decision; thorough: research tools, more of them"
    )
    instructions: str | None = Field(default=None, description="Instructions for clients of this profile")
    guidance: str | None = Field(
        default=None, description="Instructions for the configured models on how to use tools"
    )
    directives: dict[str, str] = Field(
        default_factory=dict, description="Sections that end every prompt, by name: what the client acts on"
    )
    policy: tuple[RuleSettings, ...] = Field(default=(), description="Rules that come before all others")
    users: tuple[str, ...] = Field(
        default=(), description="Who may use it, `*` allowed; with plans empty, too: all callers"
    )
    plans: tuple[str, ...] = Field(default=(), description="Plans ([plans]) whose members may use it, too")
    default: bool = Field(default=False, description="Used for callers who may use it and name no profile")
    api_versions: tuple[str, ...] = Field(
        default=(), description="Selected by requests that name one of these API versions"
    )


class Settings(Section):
    """Everything, effective. `servers` is keyed by the server's name."""

    servers_file: str | None = Field(
        default=None,
        description="An mcpServers JSON to read servers from; relative to the file it is written in",
    )
    profiles_folder: str | None = Field(
        default=None,
        description="A folder of profiles, one TOML file each; by default profiles/ beside fingerpost.toml",
    )
    tool_routing: ToolRoutingSettings = Field(default_factory=ToolRoutingSettings.model_construct)
    smart_routing: SmartRoutingSettings = Field(default_factory=SmartRoutingSettings.model_construct)
    narrow: NarrowSettings = Field(default_factory=NarrowSettings.model_construct)
    choose: ChooseSettings = Field(default_factory=ChooseSettings.model_construct)
    models: ModelsSettings = Field(
        default_factory=ModelsSettings.model_construct, description="Language models, if any"
    )
    store: StoreSettings = Field(default_factory=StoreSettings.model_construct)
    limits: LimitSettings = Field(default_factory=LimitSettings.model_construct)
    lifecycle: LifecycleSettings = Field(default_factory=LifecycleSettings.model_construct)
    call: CallSettings = Field(default_factory=CallSettings.model_construct, description="How calls are run")
    digest: DigestSettings = Field(
        default_factory=DigestSettings.model_construct, description="How results are cut"
    )
    policy: tuple[RuleSettings, ...] = Field(default=(), description="Rules; the first that matches decides")
    gateway: GatewaySettings = Field(
        default_factory=GatewaySettings.model_construct, description="The MCP gateway"
    )
    completions: CompletionsSettings = Field(
        default_factory=CompletionsSettings.model_construct, description="The OpenAI-compatible endpoint"
    )
    api: ApiSettings = Field(default_factory=ApiSettings.model_construct, description="The API")
    console: ConsoleSettings = Field(
        default_factory=ConsoleSettings.model_construct, description="The web console"
    )
    audit: AuditSettings = Field(
        default_factory=AuditSettings.model_construct, description="Anchors of the audit trail"
    )
    telemetry: TelemetrySettings = Field(
        default_factory=TelemetrySettings.model_construct, description="Metrics and spans"
    )
    builtin: BuiltinSettings = Field(
        default_factory=BuiltinSettings.model_construct, description="Built-in servers"
    )
    extensions: ExtensionSettings = Field(
        default_factory=ExtensionSettings.model_construct,
        description="Scorers, rules and servers of installed packages",
    )
    discord: DiscordSettings = Field(
        default_factory=DiscordSettings.model_construct, description="The Discord connector"
    )
    profiles: dict[str, ProfileSettings] = Field(
        default_factory=dict, description="Choices of tools, by name"
    )
    plans: dict[str, str] = Field(
        default_factory=dict, description="Who is on which plan: names, `*` allowed, the first that fits"
    )
    flags: FlagSettings = Field(default_factory=FlagSettings.model_construct)
    learning: LearningSettings = Field(
        default_factory=LearningSettings.model_construct, description="What is learned from use and feedback"
    )
    tools: tuple[ToolOverride, ...] = ()
    quotas: tuple[QuotaSettings, ...] = Field(default=(), description="Limits for users, keys and profiles")
    rollout: tuple[RolloutSettings, ...] = Field(
        default=(), description="Changed settings for a share of conversations"
    )
    servers: dict[str, ServerSettings] = Field(default_factory=dict)
