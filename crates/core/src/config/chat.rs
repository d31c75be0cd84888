//! The resolved form of `chat`, with the defaults of each platform applied, and the schedule that an agent with `chat`
//! gets.

use jiff::SignedDuration;

use super::node::{Entry, Location, Map, Node, Scalar, Value};
use crate::chat::ChatPlatform;
use crate::chat::prompt::CHAT_PROMPT;
use crate::chat::prompt::CHAT_SCHEDULE;
use crate::chat::settings::{
    ActivityKind, AgentChat, AnswerMode, AttachmentRules, BotConfig, CONTEXT_MESSAGES, ChatAccess,
    ChatChannel, ChatGuild, ChatOutput, ChatSkill, DirectRules, MessageRate, OutputDetail, PlatformChat,
    PostedMessages, VoiceService,
};
use crate::hook::SLACK_TOKEN_VARIABLE;
use crate::shape::{
    ActivityType, AssistantMessages, Attachments, Channel, Chat, ChatMode, ChatOutputConfig,
    CommandRegistration, CommandScope, DirectMessages, Discord, Guild, LogLevel, PlatformOptions, Presence,
    Skill, Slack, Voice,
};

/// Default variable with the token of a Slack app.
const SLACK_APP_TOKEN_VARIABLE: &str = "SLACK_APP_TOKEN";
/// Default variable with the key of the speech service.
const SPEECH_KEY_VARIABLE: &str = "OPENAI_API_KEY";
const SPEECH_MODEL: &str = "whisper-1";
const SESSION_EXPIRY_HOURS: u32 = 24;
const TOOL_RESULT_MAX_LENGTH: u32 = 900;
const MAX_ATTACHMENT_MIB: f64 = 10.0;
const MAX_ATTACHMENTS: u32 = 5;
const ATTACHMENT_TYPES: [&str; 3] = ["image/*", "application/pdf", "text/*"];

/// Adds the schedule `chat` to an agent with settings for a platform, unless the agent has a schedule of this name. A
/// message is no work item, so the schedule does not inherit the work source of the agent.
pub(super) fn add_schedule(agent: &mut Node) {
    let Some(chat) = agent.entry("chat") else { return };
    if ["discord", "slack"].iter().all(|platform| chat.node.entry(platform).is_none()) {
        return;
    }
    let at = chat.key_at;
    let Value::Map(keys) = &mut agent.value else { return };
    let empty = || Entry { key_at: at, node: Node::empty_map(at) };
    let schedules = keys.entries.entry("schedules".to_owned()).or_insert_with(empty);
    if schedules.node.is_null() {
        *schedules = empty();
    }
    let Value::Map(schedules) = &mut schedules.node.value else { return };
    if schedules.entries.get(CHAT_SCHEDULE).is_none_or(|written| written.node.is_null()) {
        let prompt = Scalar { text: CHAT_PROMPT.to_owned(), ..Scalar::default() };
        let type_and_source = [("type", "chat"), ("work_source", "~")]
            .map(|(key, word)| (key, Scalar { text: word.to_owned(), plain: true, ..Scalar::default() }));
        let entries = type_and_source.into_iter().chain([("prompt", prompt)]);
        let entries = entries.map(|(key, scalar)| (key.to_owned(), entry(at, Value::Scalar(scalar))));
        let schedule = Map { entries: entries.collect(), ..Map::default() };
        schedules.entries.insert(CHAT_SCHEDULE.to_owned(), entry(at, Value::Map(schedule)));
    }
}

const fn entry(at: Location, value: Value) -> Entry {
    Entry { key_at: at, node: Node { value, at } }
}

/// Returns the settings; none if they name no platform.
pub(super) fn settings(chat: Chat) -> Option<AgentChat> {
    let platforms = [chat.discord.map(discord), chat.slack.map(slack)];
    let platforms: Vec<PlatformChat> = platforms.into_iter().flatten().collect();
    (!platforms.is_empty()).then_some(AgentChat { platforms })
}

fn discord(mut config: Discord) -> PlatformChat {
    // A direct message belongs to no guild, so the rules of the first guild that has some are those of the bot.
    config.options.dm = config.options.dm.or_else(|| config.guilds.iter().find_map(|guild| guild.dm.clone()));
    let bot = BotConfig {
        token_env: config.bot_token_env,
        app_token_env: None,
        api_url: config.options.api_url.clone(),
        presence: config.presence.and_then(presence),
        command_guild: config.command_registration.and_then(command_guild),
    };
    let channels = config.guilds.iter().flat_map(channels_of).collect();
    let guild = |guild: Guild| ChatGuild { id: guild.id, default_mode: guild.default_channel_mode.map(mode) };
    let guilds = config.guilds.iter().cloned().map(guild).collect();
    platform(ChatPlatform::Discord, bot, config.roles, (channels, guilds), config.options)
}

fn slack(config: Slack) -> PlatformChat {
    let bot = BotConfig {
        token_env: config.bot_token_env.unwrap_or_else(|| SLACK_TOKEN_VARIABLE.to_owned()),
        app_token_env: Some(config.app_token_env.unwrap_or_else(|| SLACK_APP_TOKEN_VARIABLE.to_owned())),
        api_url: config.options.api_url.clone(),
        presence: None,
        command_guild: None,
    };
    let channels = config.channels.into_iter().map(|own| channel(own, None)).collect();
    platform(ChatPlatform::Slack, bot, Vec::new(), (channels, Vec::new()), config.options)
}

fn platform(
    platform: ChatPlatform,
    bot: BotConfig,
    roles: Vec<String>,
    (channels, guilds): (Vec<ChatChannel>, Vec<ChatGuild>),
    options: PlatformOptions,
) -> PlatformChat {
    let hours = options.session_expiry_hours.unwrap_or(SESSION_EXPIRY_HOURS);
    let rate = options.rate;
    PlatformChat {
        platform,
        bot,
        access: ChatAccess {
            everyone: options.everyone.unwrap_or(false),
            users: options.users,
            roles,
            operators: options.operators,
            bots: options.bots,
            rate: rate.map(|rate| MessageRate { messages: rate.messages, period: rate.per.duration() }),
            per_user_per_day_usd: options.budget.and_then(|budget| budget.per_user_per_day_usd),
        },
        channels,
        guilds,
        answers_every_thread: false,
        direct: options.dm.map(direct).unwrap_or_default(),
        session_expires: SignedDuration::from_hours(hours.into()),
        output: output(platform, options.output.unwrap_or_default(), options.log_level),
        attachments: options.attachments.and_then(|own| attachments(platform, own)),
        voice: options.voice.and_then(voice),
        skills: options.skills.map(|skills| skills.into_iter().map(skill).collect()),
    }
}

fn channels_of(guild: &Guild) -> Vec<ChatChannel> {
    let channels = guild.channels.iter().flatten().cloned();
    channels.map(|own| channel(own, Some(guild.id.clone()))).collect()
}

fn channel(config: Channel, guild: Option<String>) -> ChatChannel {
    ChatChannel {
        guild,
        id: config.id,
        mode: config.mode.map_or(AnswerMode::Mention, mode),
        context_messages: config.context_messages.unwrap_or(CONTEXT_MESSAGES),
    }
}

const fn mode(mode: ChatMode) -> AnswerMode {
    match mode {
        ChatMode::Mention => AnswerMode::Mention,
        ChatMode::Auto => AnswerMode::Auto,
    }
}

fn direct(config: DirectMessages) -> DirectRules {
    let usual = DirectRules::default();
    DirectRules {
        enabled: config.enabled.unwrap_or(usual.enabled),
        mode: config.mode.map_or(usual.mode, mode),
        everyone: config.everyone.unwrap_or(usual.everyone),
        allowlist: config.allowlist.unwrap_or_default(),
        blocklist: config.blocklist.unwrap_or_default(),
        ..usual
    }
}

/// Returns the presence; none unless both of its keys are set.
fn presence(config: Presence) -> Option<(ActivityKind, String)> {
    let kind = match config.activity_type? {
        ActivityType::Playing => ActivityKind::Playing,
        ActivityType::Watching => ActivityKind::Watching,
        ActivityType::Listening => ActivityKind::Listening,
        ActivityType::Competing => ActivityKind::Competing,
        ActivityType::Custom => ActivityKind::Custom,
    };
    Some((kind, config.activity_message?))
}

fn command_guild(config: CommandRegistration) -> Option<String> {
    config.guild_id.filter(|_| config.scope == Some(CommandScope::Guild))
}

fn output(platform: ChatPlatform, config: ChatOutputConfig, detail: Option<LogLevel>) -> ChatOutput {
    let emoji = match platform {
        ChatPlatform::Discord => "👀",
        ChatPlatform::Slack => "hourglass_flowing_sand",
    };
    let emoji = config.acknowledge_emoji.unwrap_or_else(|| emoji.to_owned());
    let max_length = config.tool_result_max_length.unwrap_or(TOOL_RESULT_MAX_LENGTH);
    ChatOutput {
        tool_results: config.tool_results.unwrap_or(true),
        tool_result_max_length: usize::try_from(max_length).unwrap_or(usize::MAX),
        system_status: config.system_status.unwrap_or(true),
        errors: config.errors.unwrap_or(true),
        result_summary: config.result_summary.unwrap_or(false),
        typing_indicator: config.typing_indicator.unwrap_or(true),
        acknowledge_emoji: (!emoji.is_empty()).then_some(emoji),
        assistant_messages: match config.assistant_messages {
            None | Some(AssistantMessages::Answers) => PostedMessages::Answers,
            Some(AssistantMessages::All) => PostedMessages::All,
        },
        progress_indicator: config.progress_indicator.unwrap_or(true),
        detail: match detail {
            Some(LogLevel::Minimal) => OutputDetail::Minimal,
            None | Some(LogLevel::Standard) => OutputDetail::Standard,
            Some(LogLevel::Verbose) => OutputDetail::Verbose,
        },
    }
}

/// Returns the rules for files; none if they are not enabled.
fn attachments(platform: ChatPlatform, config: Attachments) -> Option<AttachmentRules> {
    if config.enabled != Some(true) {
        return None;
    }
    let usual_types = || ATTACHMENT_TYPES.map(str::to_owned).to_vec();
    Some(AttachmentRules {
        max_file_bytes: bytes_of_mib(config.max_file_size_mb.unwrap_or(MAX_ATTACHMENT_MIB)),
        max_files: config.max_files_per_message.unwrap_or(MAX_ATTACHMENTS),
        allowed_types: config.allowed_types.unwrap_or_else(usual_types),
        folder: config.download_dir.unwrap_or_else(|| format!(".{platform}-attachments")),
        removed_after_job: config.cleanup_after_processing.unwrap_or(true),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the schema allows only positive numbers, and a number that is too large becomes the largest one"
)]
fn bytes_of_mib(mib: f64) -> u64 {
    (mib * 1_048_576.0) as u64
}

/// Returns the speech service; none if it is not enabled.
fn voice(config: Voice) -> Option<VoiceService> {
    (config.enabled == Some(true)).then(|| VoiceService {
        key_env: config.api_key_env.unwrap_or_else(|| SPEECH_KEY_VARIABLE.to_owned()),
        model: config.model.unwrap_or_else(|| SPEECH_MODEL.to_owned()),
        language: config.language,
        api_url: config.api_url,
    })
}

fn skill(config: Skill) -> ChatSkill {
    ChatSkill { name: config.name, description: config.description.unwrap_or_default() }
}
