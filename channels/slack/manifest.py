"""The app as Slack is told of it: what it may do, and what it hears of."""

MANIFEST = """\
display_information:
  name: SupaClaw
  description: Your own agent
features:
  app_home:
    home_tab_enabled: false
    messages_tab_enabled: true
    messages_tab_read_only_enabled: false
  bot_user:
    display_name: SupaClaw
    always_online: true
  agent_view:
    agent_description: Your own agent. It remembers, keeps schedules and works with your files.
    suggested_prompts:
      - title: What can you do?
        message: What can you do for me?
      - title: What is next?
        message: What am I working on, and what is due next?
  slash_commands:
    - command: /claw
      description: A command, or a message to the agent
      usage_hint: "new | status | help | anything you want to say"
      should_escape: false
oauth_config:
  scopes:
    bot:
      - app_mentions:read
      - assistant:write
      - channels:history
      - chat:write
      - commands
      - files:read
      - files:write
      - groups:history
      - im:history
      - metadata.message:read
      - mpim:history
      - reactions:write
      - users:read
settings:
  event_subscriptions:
    bot_events:
      - app_mention
      - message.channels
      - message.groups
      - message.im
      - message.mpim
  interactivity:
    is_enabled: true
  org_deploy_enabled: false
  socket_mode_enabled: true
  token_rotation_enabled: false
"""
