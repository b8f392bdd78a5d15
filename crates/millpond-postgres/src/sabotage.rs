//! Known bugs, by name. The crash tests switch one on and must catch it; a release has none of them.

/// Whether the named bug is switched on, by `MILLPOND_SABOTAGE`, in a build made for it.
#[cfg(feature = "sabotage")]
pub(crate) fn sabotaged(name: &str) -> bool {
    use std::sync::OnceLock;
    static CHOSEN: OnceLock<String> = OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("MILLPOND_SABOTAGE").unwrap_or_default()) == name
}

/// Never.
#[cfg(not(feature = "sabotage"))]
pub(crate) const fn sabotaged(_name: &str) -> bool {
    false
}

/// The same bugs in functions of the schema: the bug, the function, what is written there, and what takes its place.
#[cfg(feature = "sabotage")]
const IN_FUNCTIONS: [(&str, &str, &str, &str); 4] = [
    ("no_fence", "settle", "and c.token = tokens[i]", ""),
    ("highest_claim_deleted", "settle", "if above then", "if true then"),
    ("late_inbox_check", "settle", "if known is not null or cancelled", "if cancelled"),
    ("relay_forgets", "relay", "where u.queue_id =", "where u.place > 1 and u.queue_id ="),
];

/// Puts the bug that is switched on into the functions of the schema.
#[cfg(feature = "sabotage")]
pub(crate) async fn spoil(connection: &mut crate::connection::Connection) -> crate::error::Tried<()> {
    use tokio_postgres::types::Type;
    let schema = connection.target.location.schema.clone();
    for (_, function, good, bad) in IN_FUNCTIONS.into_iter().filter(|(name, ..)| sabotaged(name)) {
        let name = format!("{schema}.{function}");
        let spoil = async |connection: &mut crate::connection::Connection| {
            connection.row("schema_lock", &[]).await?;
            let text = "select pg_get_functiondef($1::text::regproc)";
            let row = connection.client.query_typed_one(text, &[(&name, Type::TEXT)]).await?;
            connection.step(&row.get::<_, String>(0).replace(good, bad)).await
        };
        connection.transaction("begin", spoil).await?;
    }
    Ok(())
}
