"""Tools of well-known public servers, in our own words, each with the effect a careful person gives it.

Labelled before the rules were tried on them. `read`: nothing changes. `write`: something new or different
remains, or data is sent elsewhere. `destroy`: something may be lost, or anything at all may happen (code,
commands, SQL).
"""

from __future__ import annotations

from typing import NamedTuple

from fingerpost.records import Effect


class Labelled(NamedTuple):
    server: str
    name: str
    description: str
    effect: Effect


def _tools(server: str, effect: Effect, lines: str) -> list[Labelled]:
    found: list[Labelled] = []
    for line in lines.strip().splitlines():
        name, _, description = line.strip().partition(": ")
        found.append(Labelled(server, name, description, effect))
    return found


LABELLED: list[Labelled] = [
    *_tools(
        "github",
        Effect.READ,
        """
        get_file_contents: Read a file or a folder of a repository
        search_repositories: Look for repositories on GitHub
        list_issues: Issues of a repository, with filters for state and label
        get_issue: One issue with its body
        list_commits: Commits of a branch, newest first
        search_code: Find code across GitHub
        search_users: Find people and organisations
        get_pull_request: One pull request in full
        list_pull_requests: Pull requests of a repository
        get_pull_request_files: Files changed by a pull request
        get_pull_request_status: Combined result of all checks on a pull request
        get_pull_request_comments: Review comments made on a pull request
        list_workflow_runs: Recent runs of a workflow
        get_workflow_run: One run of a workflow
        get_job_logs: Download address of the log of a job
        list_branches: Branches of a repository
        list_releases: Published releases
        get_latest_release: The newest release
        list_notifications: Notifications of the signed-in user
        get_me: Details of the signed-in user
        pull_request_read: Get information on one pull request, its diff, its status or its reviews
        issue_read: Get one issue, its comments, sub-issues or labels
        """,
    ),
    *_tools(
        "github",
        Effect.WRITE,
        """
        create_issue: Open a new issue in a repository
        add_issue_comment: Comment on an existing issue
        update_issue: Change title, body, state or labels of an issue
        create_pull_request: Open a pull request
        merge_pull_request: Merge a pull request into its base
        create_branch: Make a branch from another one
        push_files: Commit several files to a branch at once
        fork_repository: Fork a repository to an account
        create_repository: Create a repository in an account
        request_copilot_review: Ask for an automatic review of a pull request
        assign_copilot_to_issue: Hand an issue to the coding agent
        rerun_failed_jobs: Run the failed jobs of a workflow run again
        mark_all_notifications_read: Mark every notification as read
        star_repository: Star a repository
        issue_write: Create a new issue or update an existing one
        """,
    ),
    *_tools(
        "github",
        Effect.DESTROY,
        """
        delete_file: Delete a file from a repository
        delete_workflow_run_logs: Delete the logs of a workflow run
        delete_pending_pull_request_review: Throw away a review that was not submitted
        run_workflow: Start a workflow of GitHub Actions
        cancel_workflow_run: Stop a workflow run
        """,
    ),
    *_tools(
        "filesystem",
        Effect.READ,
        """
        read_file: Read the whole contents of a file
        read_text_file: Contents of a file as text
        read_media_file: An image or audio file, base64 encoded
        read_multiple_files: Read several files at once
        list_directory: Entries of a directory, files and folders told apart
        list_directory_with_sizes: Entries of a directory with their sizes
        directory_tree: Get a recursive tree of a directory as JSON
        search_files: Find files whose name matches a pattern
        get_file_info: Size, times and permissions of a file
        list_allowed_directories: The directories this server may access
        """,
    ),
    *_tools(
        "filesystem",
        Effect.WRITE,
        """
        create_directory: Make a directory, parents included
        move_file: Move or rename a file or a directory
        edit_file: Make line-based edits to a text file and return a diff
        """,
    ),
    *_tools(
        "filesystem",
        Effect.DESTROY,
        """
        write_file: Create a new file or completely overwrite an existing file with new content
        delete_directory: Remove a directory and everything in it
        """,
    ),
    *_tools(
        "slack",
        Effect.READ,
        """
        slack_list_channels: Public channels of the workspace, page by page
        slack_get_channel_history: Recent messages of a channel
        slack_get_thread_replies: All replies in a thread
        slack_get_users: Everybody in the workspace with basic profiles
        slack_get_user_profile: Profile of one person
        slack_search_messages: Find messages by their text
        """,
    ),
    *_tools(
        "slack",
        Effect.WRITE,
        """
        slack_post_message: Post a message to a channel
        slack_reply_to_thread: Reply in a thread
        slack_add_reaction: Put an emoji on a message
        slack_schedule_message: Send a message later
        slack_join_channel: Join a channel
        """,
    ),
    *_tools("slack", Effect.DESTROY, "slack_delete_message: Delete a message that was posted"),
    *_tools("postgres", Effect.READ, "query: Run a read-only SQL query"),
    *_tools(
        "sqlite",
        Effect.READ,
        """
        read_query: Execute a SELECT query on the database
        list_tables: All tables of the database
        describe_table: Columns and types of one table
        """,
    ),
    *_tools(
        "sqlite",
        Effect.WRITE,
        """
        create_table: Create a new table in the database
        append_insight: Add a business insight to the memo
        """,
    ),
    *_tools(
        "databases",
        Effect.DESTROY,
        """
        execute_sql: Execute SQL against the connected project
        run_query: Run a query on the warehouse
        mysql_query: Run any SQL statement
        drop_collection: Remove a collection from the database
        delete_many: Delete all documents that match
        drop_table: Drop a table
        truncate_table: Remove all rows
        """,
    ),
    *_tools(
        "databases",
        Effect.READ,
        """
        find: Run a find query against a collection
        count: Count documents in a collection
        collection_indexes: Describe the indexes of a collection
        explain: Show the plan of an operation
        list_databases: All databases of the connection
        get_object_details: Show columns, constraints and indexes of a table
        analyze_query_indexes: Recommend indexes for a list of queries
        """,
    ),
    *_tools(
        "databases",
        Effect.WRITE,
        """
        insert_many: Insert documents into a collection
        update_many: Update all documents that match
        create_index: Create an index on a collection
        rename_collection: Give a collection another name
        apply_migration: Apply a migration to the database
        """,
    ),
    *_tools(
        "puppeteer",
        Effect.WRITE,
        """
        puppeteer_navigate: Go to a URL
        puppeteer_click: Click an element on the page
        puppeteer_fill: Fill in an input field
        puppeteer_select: Choose an option of a select element
        puppeteer_hover: Hover an element on the page
        """,
    ),
    *_tools("puppeteer", Effect.READ, "puppeteer_screenshot: Take a screenshot of the page or one element"),
    *_tools("puppeteer", Effect.DESTROY, "puppeteer_evaluate: Execute JavaScript in the browser console"),
    *_tools(
        "playwright",
        Effect.READ,
        """
        browser_snapshot: Capture the accessibility tree of the current page
        browser_take_screenshot: Take a screenshot of the current page
        browser_console_messages: Returns all console messages
        browser_network_requests: Returns all network requests since the page was loaded
        """,
    ),
    *_tools(
        "playwright",
        Effect.WRITE,
        """
        browser_navigate: Navigate to a URL
        browser_type: Type text into an editable element
        browser_press_key: Press a key on the keyboard
        browser_file_upload: Upload one or several files
        browser_handle_dialog: Handle a dialog
        browser_tab_new: Open a new tab
        browser_close: Close the page
        browser_resize: Resize the browser window
        """,
    ),
    *_tools("playwright", Effect.DESTROY, "browser_run_code: Run a piece of Playwright code"),
    *_tools(
        "stripe",
        Effect.READ,
        """
        list_customers: Customers of the account
        retrieve_balance: The balance of the account
        list_products: Products of the account
        list_invoices: Invoices, by customer if wanted
        list_disputes: Disputes of the account
        search_documentation: Search the documentation for an answer
        list_payment_intents: Payment intents of the account
        """,
    ),
    *_tools(
        "stripe",
        Effect.WRITE,
        """
        create_customer: Create a customer
        create_payment_link: Create a link through which one can pay
        create_refund: Refund a payment
        finalize_invoice: Finalise an invoice
        update_subscription: Change an existing subscription
        update_dispute: Submit evidence for a dispute
        """,
    ),
    *_tools("stripe", Effect.DESTROY, "cancel_subscription: End a subscription"),
    *_tools(
        "notion",
        Effect.READ,
        """
        API-retrieve-a-page: One page with its properties
        API-get-block-children: Blocks inside a block
        API-retrieve-a-database: Structure of a database
        API-get-users: People of the workspace
        notion-search: Find pages and databases in the workspace
        notion-fetch: Retrieve a page or database by its address
        """,
    ),
    *_tools(
        "notion",
        Effect.WRITE,
        """
        API-patch-page: Change properties of a page
        API-patch-block-children: Append blocks to a block
        API-create-a-comment: Comment on a page
        notion-create-pages: Create one or several pages
        notion-update-page: Change properties or content of a page
        notion-move-pages: Move pages to another parent
        notion-duplicate-page: Duplicate a page
        """,
    ),
    *_tools("notion", Effect.DESTROY, "API-delete-a-block: Delete a block"),
    *_tools(
        "git",
        Effect.READ,
        """
        git_status: State of the working tree
        git_diff_unstaged: Changes that are not staged yet
        git_diff_staged: Changes that are staged
        git_log: History of commits
        git_show: Contents of a commit
        git_branch: List Git branches
        """,
    ),
    *_tools(
        "git",
        Effect.WRITE,
        """
        git_add: Stage contents of files
        git_commit: Record staged changes
        git_create_branch: Create a branch
        git_checkout: Switch to another branch
        git_init: Start a repository
        git_push: Publish local commits
        """,
    ),
    *_tools("git", Effect.DESTROY, "git_reset: Unstage everything that is staged"),
    *_tools(
        "memory",
        Effect.READ,
        """
        read_graph: The whole knowledge graph
        search_nodes: Look for nodes in the knowledge graph
        open_nodes: Retrieve particular nodes by their names
        """,
    ),
    *_tools(
        "memory",
        Effect.WRITE,
        """
        create_entities: Create several entities in the graph
        create_relations: Connect entities
        add_observations: Note something about an entity
        """,
    ),
    *_tools(
        "memory",
        Effect.DESTROY,
        """
        delete_entities: Remove entities and their relations
        delete_observations: Remove observations of entities
        delete_relations: Remove relations
        """,
    ),
    *_tools(
        "world",
        Effect.READ,
        """
        get_current_time: The time in a time zone
        convert_time: Turn a time of one zone into that of another
        fetch: Fetches a URL and optionally extracts its contents as markdown
        brave_web_search: Performs a web search with general results
        brave_local_search: Performs a search for places nearby
        maps_geocode: Turn an address into coordinates
        maps_directions: Get directions between two places
        maps_reverse_geocode: Turn coordinates into an address
        get_weather_forecast: The weather of the next days
        tavily-search: Search the web with an engine made for agents
        tavily-extract: Extract the content of given pages
        perplexity_ask: Ask a question answered with sources
        perplexity_research: Research a question in depth
        get-library-docs: Documentation of a library, up to date
        firecrawl_search: Search the web and return pages
        datagov_query: Query a data set of the government
        get_transcript: The spoken text of a video
        echo: Echoes back what it is given
        """,
    ),
    *_tools(
        "office",
        Effect.READ,
        """
        gmail_search_messages: Find mails by a query
        gmail_read_message: One mail in full
        calendar_list_events: Events between two dates
        calendar_find_free_time: Free slots common to several people
        drive_search_files: Find files in the drive
        sheets_read_range: Values of a range of cells
        getJiraIssue: One issue of Jira
        searchJiraIssuesUsingJql: Issues that match a JQL query
        linear_list_issues: Issues of the workspace
        figma_get_file: Nodes of a design file
        """,
    ),
    *_tools(
        "office",
        Effect.WRITE,
        """
        gmail_send_email: Send a mail
        gmail_create_draft: Save a mail as a draft
        gmail_modify_labels: Change the labels of a mail
        calendar_create_event: Put an event into the calendar
        calendar_respond_to_event: Accept or decline an invitation
        sheets_update_range: Write values into cells
        createJiraIssue: Open an issue in Jira
        transitionJiraIssue: Move an issue to another state
        addCommentToJiraIssue: Comment on an issue
        drive_share_file: Give somebody access to a file
        time_entry_start: Begin to track time
        """,
    ),
    *_tools(
        "office",
        Effect.DESTROY,
        """
        gmail_delete_email: Delete a mail for good
        gmail_batch_delete_emails: Delete many mails at once
        calendar_delete_event: Remove an event
        gmail_empty_trash: Remove everything in the trash
        """,
    ),
    *_tools(
        "machines",
        Effect.READ,
        """
        pods_list: List all pods of the cluster
        pods_log: Get the log of a pod
        resources_get: Get one resource of the cluster
        list_containers: All containers
        get_sentry_issue: One issue of Sentry with its stack trace
        query_prometheus: Query metrics over a range of time
        search_dashboards: Find dashboards
        get_deployment_status: How a deployment is going
        list_processes: Programs that are running
        """,
    ),
    *_tools(
        "machines",
        Effect.WRITE,
        """
        resources_create_or_update: Create or update a resource from YAML
        start_container: Start a container
        stop_container: Stop a container
        update_incident: Change an incident
        deploy_project: Deploy the current project
        set_env_variable: Set a variable of an environment
        """,
    ),
    *_tools(
        "machines",
        Effect.DESTROY,
        """
        pods_delete: Delete a pod
        pods_exec: Run a command in a pod
        pods_run: Run a container image in a new pod
        remove_container: Remove a container
        kill_process: End a program by its id
        execute_command: Run a command in the shell
        run_terminal_cmd: Propose a command to be run
        bash: Run a command in bash
        run_python_code: Run Python code in a sandbox
        reset_database: Put the database back to its first state
        terminate_instances: Terminate machines
        purge_queue: Remove everything from a queue
        """,
    ),
]
