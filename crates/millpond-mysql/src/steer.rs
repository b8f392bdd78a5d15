//! Wishes of workers: what they read with their next renewal.

use millpond_core::view::Wish;

use crate::connection::Param;
use crate::error::Tried;
use crate::operate::Change;

impl Change<'_> {
    /// Wishes something of one worker that lives, or of all; answers how many there are.
    pub(crate) async fn steer(&self, worker: Option<&str>, wish: Option<Wish>) -> Tried<u64> {
        let wish = wish.map(Wish::as_str);
        let params: [Param<'_>; 3] = [&worker, &wish, &self.now.as_micros()];
        let concerned = self.connection.run("worker_wish", &params).await?;
        // They look at once, and not with their next renewal.
        self.raise_declarations().await?;
        self.audit(concerned).await?;
        Ok(concerned)
    }
}
