//! The audit: one line for each change, in its transaction, chained by a hash to the line before.

use millpond_core::audit::link;
use millpond_core::store::Act;

use crate::connection::Param;
use crate::error::Tried;
use crate::operate::Change;

impl Change<'_> {
    /// Writes who did what, to how many rows. The last thing that a change does: the next one waits for its commit.
    pub(crate) async fn audit(&self, count: u64) -> Tried<()> {
        self.connection.row("audit_lock", &[]).await?;
        let last = self.connection.row_if_any("audit_last", &[]).await?;
        let (number, before) =
            last.map_or((1, Vec::new()), |row| (row.get::<_, i64>(0).unsigned_abs() + 1, row.get(1)));
        let Act { actor, verb, object, reason } = self.act;
        let hash = link(&before, number, self.now, count, self.act).to_vec();
        let params: [Param<'_>; 8] = [
            &number.cast_signed(),
            &self.now.as_micros(),
            actor,
            verb,
            object,
            &count.cast_signed(),
            reason,
            &hash,
        ];
        self.connection.run("audit_add", &params).await.map(drop)
    }
}
